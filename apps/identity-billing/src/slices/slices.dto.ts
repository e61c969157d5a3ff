import {
  IdField,
  IntField,
  ListField,
  RecordField,
  type SliceCaller,
  type SliceOpenRequest,
  type SliceRenewRequest,
  type SliceReturnRequest,
  type SliceTakeRequest,
  StrField,
} from '@nebo/contracts';

/** 10⁻⁹ rubles as text; eighteen digits stay well inside the database's integers. */
const amount = /^\d{1,18}$/;
/** Slices in one call. */
const maxItems = 1_000;

export class SliceOpenBody implements SliceOpenRequest {
  @IdField()
  router_id!: string;
}

class CallerBody implements SliceCaller {
  @IdField()
  router_id!: string;
  @IntField({ min: 1, max: 2_147_483_647 })
  epoch!: number;
}

class KeyWantBody {
  @IdField()
  key_id!: string;
  @StrField({ pattern: amount })
  need!: string;
  @StrField({ pattern: amount })
  want!: string;
}

export class SliceTakeBody extends CallerBody implements SliceTakeRequest {
  @IdField()
  account_id!: string;
  @StrField({ pattern: amount })
  need!: string;
  @StrField({ pattern: amount })
  want!: string;
  @RecordField(() => KeyWantBody, { optional: true })
  key?: KeyWantBody;
}

class InUseBody {
  @IdField()
  id!: string;
  @StrField({ pattern: amount })
  in_use!: string;
}

export class SliceRenewBody extends CallerBody implements SliceRenewRequest {
  @ListField(() => InUseBody, { maxItems })
  slices!: InUseBody[];
}

class UnusedBody {
  @IdField()
  id!: string;
  @IntField({ min: 1, max: 2_147_483_647 })
  version!: number;
  @StrField({ pattern: amount })
  amount!: string;
}

export class SliceReturnBody extends CallerBody implements SliceReturnRequest {
  @ListField(() => UnusedBody, { maxItems })
  slices!: UnusedBody[];
}

export class SliceListQuery {
  @IdField({ optional: true })
  account?: string;
}

export class SliceBody {
  @IdField()
  slice!: string;
}
