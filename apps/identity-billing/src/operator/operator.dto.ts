import {
  EnumField,
  IdField,
  ListField,
  type PolicyStatement,
  type Role,
  StrField,
  StringsField,
  V1PolicyStatement,
} from '@nebo/contracts';
import { ClosedBody } from '@nebo/service-kit';
import { roles } from '../members/members.service.js';

/** Decimal rubles above or equal to zero. */
const rubles = /^\d{1,9}(\.\d{1,9})?$/;

export class AccountCreateBody {
  @StrField({ min: 1, max: 255 })
  name!: string;
  @StrField({ optional: true, pattern: rubles })
  topup?: string;
  @StrField({ optional: true, pattern: rubles })
  credits?: string;
}

export class DepositBody {
  @IdField()
  account!: string;
  @StrField({ pattern: rubles })
  amount!: string;
  /** The same id again posts nothing. */
  @StrField({ optional: true, min: 1, max: 200 })
  operation_id?: string;
}

export class MemberAddBody {
  @IdField()
  account!: string;
  @StrField({ min: 1, max: 255 })
  name!: string;
  @EnumField(roles)
  role!: Role;
}

export class MemberRoleBody {
  @IdField()
  member!: string;
  @EnumField(roles)
  role!: Role;
}

/** Closed, as the others that limit something: a misspelt limit must not make a key without one. */
@ClosedBody()
export class KeyCreateBody {
  @IdField()
  account!: string;
  @StrField({ optional: true, max: 255 })
  name?: string;
  /** Statements, deny included; instead of `actions` and `resources`. */
  @ListField(() => V1PolicyStatement, { optional: true })
  policy?: PolicyStatement[];
  /** Default `*`. */
  @StringsField({ optional: true })
  actions?: string[];
  /** Default `*`. */
  @StringsField({ optional: true })
  resources?: string[];
  /** Allow-list; absent: none. */
  @StringsField({ optional: true, minItems: 1, maxItems: 200 })
  projects?: string[];
  /** Member who issues it; the owner when absent. */
  @IdField({ optional: true })
  member?: string;
}

@ClosedBody()
export class KeyPolicyBody {
  @IdField()
  key!: string;
  @ListField(() => V1PolicyStatement)
  policy!: PolicyStatement[];
  @StringsField({ optional: true, minItems: 1, maxItems: 200 })
  projects?: string[];
}

export class KeyBody {
  @IdField()
  key!: string;
}

@ClosedBody()
export class InferenceKeyCreateBody {
  @IdField()
  account!: string;
  @StrField({ optional: true, max: 255 })
  name?: string;
  @StrField({ optional: true, pattern: rubles })
  monthly_limit?: string;
  @StringsField({ optional: true, minItems: 1, maxItems: 200 })
  models?: string[];
  @IdField({ optional: true })
  member?: string;
}

export class ProjectCreateBody {
  @IdField()
  account!: string;
  @StrField({ min: 1, max: 255 })
  name!: string;
}

export class PriceSetBody {
  @StrField({ min: 1, max: 200, pattern: /^[a-z0-9][a-z0-9._-]*$/ })
  id!: string;
  /** Decimal rubles per unit. */
  @StrField({ pattern: rubles })
  amount!: string;
  /** Needed for a price that is new. */
  @StrField({ optional: true, min: 1, max: 40 })
  unit?: string;
}

export class AccountQuery {
  @IdField()
  account!: string;
}

export class PrefixQuery {
  @StrField({ optional: true, max: 200 })
  prefix?: string;
}
