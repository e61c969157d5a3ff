import { BoolField, IntField, StrField, StringsField, TimeField } from '../fields.js';

/** States of a zone: `active` once the delegation names all of our name servers. */
export const zoneStatuses = ['pending', 'active'] as const;
export type ZoneStatus = (typeof zoneStatuses)[number];

/** Types of records that can be made. SOA and the NS of a zone itself are the platform's. */
export const recordTypes = ['A', 'AAAA', 'CAA', 'CNAME', 'MX', 'NS', 'SRV', 'TXT'] as const;
export type RecordType = (typeof recordTypes)[number];

/** Limits of a zone's data. A set must fit into one DNS message, which has 16 bits for its length. */
export const dnsLimits = { ttl: 604_800, content: 4096, values: 256, setBytes: 48_000 } as const;

/** A DNS zone. */
export class V1Zone {
  @StrField()
  id!: string;
  @StrField({ description: 'Absolute, lower case, with the trailing dot', example: 'example.com.' })
  name!: string;
  @StrField({ description: `One of ${zoneStatuses.join(', ')}` })
  status!: string;
  @StrField({ nullable: true, optional: true, description: 'What the last check of the delegation found' })
  status_reason!: string | null;
  @TimeField({ declared: true })
  created_at!: string;
  @TimeField({ declared: true })
  updated_at!: string;
  @IntField({
    nullable: true,
    optional: true,
    description: 'Seconds; of sets that have no TTL. Null: the platform’s',
  })
  default_ttl!: number | null;
  @BoolField({ default: false })
  dnssec_enabled!: boolean;
  @StringsField({ description: 'Name servers that the parent zone has to delegate to, all of them' })
  nameservers!: string[];
}

/** Body to create a zone. */
export class V1ZoneCreate {
  @StrField({ min: 1, max: 254, description: 'With or without the trailing dot', example: 'example.com' })
  name!: string;
  @IntField({ nullable: true, optional: true, min: 0, max: dnsLimits.ttl, description: 'Seconds' })
  default_ttl?: number | null;
  @BoolField({ default: false, description: 'True is not supported yet: 422 not_supported' })
  dnssec_enabled?: boolean;
}

/** Body to change a zone; its name stays. */
export class V1ZoneUpdate {
  @IntField({ nullable: true, optional: true, min: 0, max: dnsLimits.ttl, description: 'Seconds' })
  default_ttl?: number | null;
  @BoolField({ nullable: true, optional: true, description: 'True is not supported yet: 422 not_supported' })
  dnssec_enabled?: boolean | null;
}

/** One value of a name and type. */
export class V1DNSRecord {
  @StrField()
  id!: string;
  @StrField()
  zone_id!: string;
  @StrField({ description: 'Absolute, lower case, the zone’s name included', example: 'www.example.com.' })
  name!: string;
  @StrField({ description: `One of ${recordTypes.join(', ')}` })
  type!: string;
  @StrField({ description: 'As it was sent' })
  content!: string;
  @IntField({
    nullable: true,
    optional: true,
    description: 'Seconds, of the whole set; null: the zone’s default',
  })
  ttl!: number | null;
  @BoolField({ default: false, description: 'Made by the platform, which alone changes it' })
  managed!: boolean;
}

const nameField = {
  min: 1,
  max: 254,
  description:
    'Absolute with a trailing dot, the zone’s name included; or relative to the zone; @ is the zone',
  example: 'www.example.com.',
};
const typeField = { min: 1, max: 10, description: `One of ${recordTypes.join(', ')}`, example: 'A' };
const contentField = {
  min: 1,
  max: dnsLimits.content,
  description: 'One value in the form of zone files; a TXT without quotes is taken as it stands',
  example: '192.0.2.1',
};
const ttlField = {
  nullable: true,
  optional: true,
  min: 0,
  max: dnsLimits.ttl,
  description: 'Seconds, of the whole set',
};

/** Body to create a record. */
export class V1DNSRecordCreate {
  @StrField(nameField)
  name!: string;
  @StrField(typeField)
  type!: string;
  @StrField(contentField)
  content!: string;
  @IntField({
    ...ttlField,
    description: 'Seconds, of the whole set; absent: the set’s, or the zone’s default',
  })
  ttl?: number | null;
}

/** Body to change a record; what is absent stays. A null TTL is the zone’s default. */
export class V1DNSRecordUpdate {
  @StrField({ ...nameField, nullable: true, optional: true })
  name?: string | null;
  @StrField({ ...typeField, nullable: true, optional: true })
  type?: string | null;
  @StrField({ ...contentField, nullable: true, optional: true })
  content?: string | null;
  @IntField(ttlField)
  ttl?: number | null;
}

/** All values of a name and type. */
export class V1DNSRecordSet {
  @StrField()
  id!: string;
  @StrField()
  zone_id!: string;
  @StrField({ description: 'Absolute, lower case, the zone’s name included', example: 'www.example.com.' })
  name!: string;
  @StrField({ description: `One of ${recordTypes.join(', ')}` })
  type!: string;
  @IntField({ nullable: true, description: 'Seconds; null: the zone’s default' })
  ttl!: number | null;
  @StringsField({ description: 'As they were sent, in that order' })
  records!: string[];
  @BoolField({
    description: 'At least one value was made by the platform: the set cannot be replaced or deleted',
  })
  managed!: boolean;
  @StrField({ description: '64 hex digits; another one after every change' })
  revision!: string;
}

const valuesField = { minItems: 1, maxItems: dnsLimits.values, description: 'Distinct values' };

/** Body to create a record set. */
export class V1DNSRecordSetCreate {
  @StrField(nameField)
  name!: string;
  @StrField(typeField)
  type!: string;
  @IntField(ttlField)
  ttl?: number | null;
  @StringsField(valuesField)
  records!: string[];
}

/** Body to replace TTL and values of a record set. */
export class V1DNSRecordSetUpdate {
  @StrField({
    pattern: /^[0-9a-fA-F]{64}$/,
    rule: 'must be a revision: 64 hex digits',
    description:
      'The revision that this change was made from; 409 dns_rrset_changed when it is not the present one',
  })
  expected_revision!: string;
  @IntField(ttlField)
  ttl?: number | null;
  @StringsField(valuesField)
  records!: string[];
}
