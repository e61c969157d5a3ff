import {
  AnyObjectField,
  BoolField,
  EnumField,
  ListField,
  StrField,
  StringsField,
  TimeField,
} from '../fields.js';

/** One statement of a key's policy. */
export class V1PolicyStatement {
  @EnumField(['allow', 'deny'], { default: 'allow' })
  effect!: 'allow' | 'deny';
  @StringsField()
  actions!: string[];
  @StringsField()
  resources!: string[];
}

/** Identity of the calling key. */
export class WhoAmIResponse {
  @StrField()
  account_id!: string;
  @StrField()
  key_id!: string;
  @ListField(() => V1PolicyStatement)
  policy!: V1PolicyStatement[];
  @StringsField({ nullable: true, description: 'Projects that the key is limited to; null: no limit' })
  project_ids!: string[] | null;
}

/** Balance of the key's account as billing sees it now. Amounts are decimal strings. */
export class V1Balance {
  @StrField({ description: 'ISO 4217' })
  currency!: string;
  @StrField({ description: 'Paid-in money not yet spent; negative: debt' })
  balance!: string;
  @StrField({ description: 'Bonus money' })
  credits!: string;
  @BoolField({ description: 'Credits count only after the first real top-up' })
  credits_unlocked!: boolean;
  @StrField({ description: 'What can be spent now: balance, plus credits when unlocked, less what is held' })
  available!: string;
  @StrField({ description: 'Smallest real top-up that unlocks the credits; "0" once unlocked' })
  real_topup_min!: string;
}

/** One posting of the account's ledger. */
export class V1LedgerEntry {
  @StrField()
  id!: string;
  @EnumField(['topup', 'credit', 'hold', 'capture', 'release', 'charge', 'refund'])
  kind!: string;
  @StrField({ description: 'Change of `balance`: positive adds' })
  amount!: string;
  @StrField({ description: 'Change of `credits`' })
  credits_amount!: string;
  @StrField({ description: 'Change of what is held' })
  held_amount!: string;
  @StrField({ description: 'Service that asked for the transfer' })
  source_service!: string;
  @StrField({ description: 'What it was for, unique in that service' })
  source_id!: string;
  @StrField()
  description!: string;
  @TimeField({ declared: true })
  created_at!: string;
}

/** One entry of the audit log. */
export class V1AuditEntry {
  @StrField()
  id!: string;
  @TimeField({ declared: true })
  at!: string;
  @StrField({ description: 'Who: key:<id>, operator or service:<name>' })
  actor!: string;
  @StrField({ description: 'Operation id or operator command' })
  action!: string;
  @StrField({ nullable: true, description: 'On what: kind:<id>' })
  resource!: string | null;
  @AnyObjectField({ nullable: true, optional: true })
  details?: object | null;
}
