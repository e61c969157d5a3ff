import {
  type CaptureRequest,
  type ComputeUsageFree,
  type ComputeUsageRequest,
  EnumField,
  IdField,
  IntField,
  ListField,
  type PriceRef,
  RecordField,
  type RefundRequest,
  type ReserveRequest,
  type SpanCloseRequest,
  type SpanOpenRequest,
  StrField,
  type UsageFacts,
  type VoidRequest,
} from '@nebo/contracts';

/** 10⁻⁹ rubles as text; eighteen digits stay well inside the database's integers. */
const amount = /^\d{1,18}$/;
const operation = { min: 1, max: 200 } as const;
const text = { max: 500 } as const;
const count = { min: 0, optional: true } as const;

class PriceRefBody implements PriceRef {
  @StrField({ min: 1, max: 200 })
  id!: string;
  @IntField({ min: 1, max: 2_147_483_647 })
  version!: number;
}

class UsageBody implements UsageFacts {
  @EnumField(['inference', 'compute'])
  kind!: 'inference' | 'compute';
  @IdField({ optional: true })
  key_id?: string;
  @StrField({ optional: true, max: 200 })
  model?: string;
  @IntField(count)
  price_version?: number;
  @IntField(count)
  input_tokens?: number;
  @IntField(count)
  cached_tokens?: number;
  @IntField(count)
  output_tokens?: number;
  @IntField(count)
  reasoning_tokens?: number;
}

export class ReserveBody implements ReserveRequest {
  @StrField(operation)
  operation_id!: string;
  @IdField()
  account_id!: string;
  @EnumField(['control', 'inference'])
  kind!: 'control' | 'inference';
  @IdField({ optional: true })
  key_id?: string;
  @StrField({ pattern: amount })
  amount!: string;
  @StrField(text)
  description!: string;
  @ListField(() => PriceRefBody, { optional: true, maxItems: 20 })
  prices?: PriceRefBody[];
  @IdField({ optional: true })
  project_id?: string;
  @IntField({ min: 1, max: 86_400, optional: true })
  expires_in_seconds?: number;
}

export class CaptureBody implements CaptureRequest {
  @StrField(operation)
  operation_id!: string;
  @IdField()
  account_id!: string;
  @StrField({ pattern: amount, optional: true })
  amount?: string;
  @StrField({ ...text, optional: true })
  description?: string;
  @RecordField(() => UsageBody, { optional: true })
  usage?: UsageBody;
}

export class VoidBody implements VoidRequest {
  @StrField(operation)
  operation_id!: string;
  @IdField()
  account_id!: string;
}

export class RefundBody implements RefundRequest {
  @StrField(operation)
  operation_id!: string;
  @IdField()
  account_id!: string;
  @StrField({ pattern: amount, optional: true })
  amount?: string;
  @StrField(text)
  description!: string;
}

export class SpanOpenBody implements SpanOpenRequest {
  @StrField(operation)
  operation_id!: string;
  @IdField()
  account_id!: string;
  @StrField({ min: 1, max: 300 })
  resource!: string;
  @StrField({ pattern: amount })
  amount_per_month!: string;
  @StrField({ pattern: amount, optional: true })
  amount_per_hour?: string;
  @StrField({ max: 40 })
  started_at!: string;
  @StrField(text)
  description!: string;
  @ListField(() => PriceRefBody, { optional: true, maxItems: 20 })
  prices?: PriceRefBody[];
  @StrField({ pattern: amount, optional: true })
  needs_available?: string;
}

export class SpanCloseBody implements SpanCloseRequest {
  @StrField(operation)
  operation_id!: string;
  @IdField()
  account_id!: string;
  @StrField({ max: 40 })
  ended_at!: string;
}

export class ComputeUsageBody implements ComputeUsageRequest {
  @StrField(operation)
  operation_id!: string;
  @IdField()
  account_id!: string;
  @IdField()
  app_id!: string;
  @EnumField(['replica', 'run'])
  kind!: 'replica' | 'run';
  @StrField({ max: 40 })
  hour!: string;
  @IntField({ min: 0, max: 2 ** 52 })
  cpu_us!: number;
  @StrField({ pattern: /^\d{1,17}$/ })
  memory_mb_ms!: string;
  @EnumField(['cpu_unmeasured', 'simulated'], { nullable: true })
  free!: ComputeUsageFree | null;
  @StrField(text)
  description!: string;
}
