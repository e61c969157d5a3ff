import { createHash, randomUUID } from 'node:crypto';
import { dnsLimits, type RecordType } from '@nebo/contracts';
import type { Sql, SqlValue } from '@nebo/persistence';
import { conflict } from '@nebo/service-kit';
import type { Content } from '../data/content.js';
import { countChange, type ZoneRow } from '../zones/zone.rows.js';

/** One value of a set. */
export interface Value {
  id: string;
  content: string;
  rdata: Buffer;
  digest: Buffer;
  /** `kind:id` of what the platform keeps it for, or null. */
  owner: string | null;
}

/** All values of a name and type, in their order. */
export interface RecordSet {
  id: string;
  zone_id: string;
  name: string;
  type: RecordType;
  ttl: number | null;
  revision: string;
  values: Value[];
}

/** Most records of a zone; beyond that the database and the name servers' memory are another installation's. */
export const maxRecords = 200_000;

interface JoinedRow extends Omit<RecordSet, 'values'> {
  record_id: string;
  content: string;
  rdata: Buffer;
  digest: Buffer;
  owner: string | null;
}

/** Reads sets with all their values. @param where of `s` (rrset), with parameters from $1 */
export async function readSets(
  tx: Sql,
  where: string,
  values: SqlValue[],
  order = 's.type',
): Promise<RecordSet[]> {
  const rows = await tx.query<JoinedRow>(
    `select s.id, s.zone_id, s.name, s.type, s.ttl, s.revision, r.id as record_id, r.content, r.rdata, r.digest, r.owner
     from rrset s join record r on r.rrset_id = s.id where ${where} order by ${order}, r.position, r.seq`,
    values,
  );
  const sets = new Map<string, RecordSet>();
  for (const { record_id, content, rdata, digest, owner, ...set } of rows) {
    let known = sets.get(set.id);
    if (!known) sets.set(set.id, (known = { ...set, values: [] }));
    known.values.push({ id: record_id, content, rdata, digest, owner });
  }
  return [...sets.values()];
}

/** The sets of one name of a zone. */
export const setsAt = (tx: Sql, zone: ZoneRow, name: string): Promise<RecordSet[]> =>
  readSets(tx, 's.zone_id = $1::uuid and s.name = $2', [zone.id, name]);

/** A value that is new. */
export const newValue = (
  content: string,
  { rdata, digest }: Content,
  owner: string | null = null,
): Value => ({
  id: randomUUID(),
  content,
  rdata,
  digest,
  owner,
});

export const isManaged = ({ values }: RecordSet): boolean => values.some(({ owner }) => owner !== null);

/** Another one after every change of TTL or values, the same for the same. */
function revisionOf(set: Pick<RecordSet, 'id' | 'ttl' | 'values'>): string {
  const hash = createHash('sha256').update(`${set.id}\n${set.ttl ?? ''}\n`);
  for (const { id, content, owner } of set.values) hash.update(`${JSON.stringify([id, content, owner])}\n`);
  return hash.digest('hex');
}

/** What a set shall be. */
export interface WantedSet {
  name: string;
  type: RecordType;
  ttl: number | null;
  values: Value[];
}

/** Changes of the sets of one zone, whose row the transaction holds; `done` counts them as one change of the zone. */
export class SetChanges {
  private readonly names = new Set<string>();
  private records = 0;

  constructor(
    private readonly tx: Sql,
    private readonly zone: ZoneRow,
  ) {}

  /**
   * Makes a set that is not there.
   * @throws ApiError 409 `dns_cname_conflict`, `dns_record_exists`, and the limits
   */
  async make(wanted: WantedSet): Promise<RecordSet> {
    const others = await this.tx.query<{ type: string }>(
      'select type from rrset where zone_id = $1::uuid and name = $2',
      [this.zone.id, wanted.name],
    );
    for (const { type } of others) {
      if (type === wanted.type)
        throw conflict('dns_record_exists', `${wanted.name} has ${type} records already`);
      if (type === 'CNAME' || wanted.type === 'CNAME')
        throw conflict(
          'dns_cname_conflict',
          `${wanted.name} has ${type} records: a CNAME stands alone at its name (RFC 1034, 3.6.2)`,
        );
    }
    const set: RecordSet = { ...wanted, id: randomUUID(), zone_id: this.zone.id, revision: '' };
    this.check(set, set.values.length);
    set.revision = revisionOf(set);
    await this.tx.query(
      `insert into rrset (id, account_id, zone_id, name, type, ttl, revision)
       values ($1::uuid, $2::uuid, $3::uuid, $4, $5, $6::int, $7)`,
      [set.id, this.zone.account_id, set.zone_id, set.name, set.type, set.ttl, set.revision],
    );
    await this.insert(set, set.values);
    return set;
  }

  /**
   * Gives a set other values or another TTL; without values it is gone. Nothing is written when nothing differs.
   * @throws ApiError 409 for the limits
   */
  async replace(set: RecordSet, wanted: Pick<RecordSet, 'ttl' | 'values'>): Promise<RecordSet> {
    const next: RecordSet = { ...set, ...wanted };
    next.revision = revisionOf(next);
    if (next.revision === set.revision) return set;
    const kept = new Map(next.values.map((value) => [value.id, value]));
    const gone = set.values.filter(({ id }) => !kept.has(id)).map(({ id }) => id);
    const known = new Map(set.values.map((value) => [value.id, value]));
    const added = next.values.filter(({ id }) => !known.has(id));
    this.check(next, added.length - gone.length);
    if (next.values.length === 0) {
      await this.tx.query('delete from rrset where id = $1::uuid', [set.id]);
      this.count(set.name, -set.values.length);
      return next;
    }
    if (gone.length > 0) {
      await this.tx.query('delete from record where id = any($1::uuid[])', [gone]);
      this.records -= gone.length;
    }
    await this.rewrite(next, known);
    if (added.length > 0) await this.insert(next, added);
    await this.tx.query('update rrset set ttl = $2::int, revision = $3 where id = $1::uuid', [
      set.id,
      next.ttl,
      next.revision,
    ]);
    this.count(set.name, 0);
    return next;
  }

  /** Counts what was done as one change of the zone, if anything was. */
  async done(): Promise<void> {
    if (this.names.size > 0) await countChange(this.tx, this.zone, [...this.names], this.records);
  }

  private count(name: string, records: number): void {
    this.names.add(name);
    this.records += records;
  }

  private check(set: RecordSet, more: number): void {
    if (set.values.length > dnsLimits.values)
      throw conflict('dns_limit', `${set.name} ${set.type} would have more than ${dnsLimits.values} values`);
    // Each answer repeats the name as a pointer, type, class, TTL and length: 12 bytes.
    const bytes = set.values.reduce((sum, { rdata }) => sum + 12 + rdata.length, 0);
    if (bytes > dnsLimits.setBytes)
      throw conflict('dns_limit', `${set.name} ${set.type} would not fit into one DNS message`);
    if (more > 0 && this.zone.record_count + this.records + more > maxRecords)
      throw conflict('dns_limit', `a zone has at most ${maxRecords} records`);
  }

  /** Values that stay: their content may be spelled anew, their place may be another. */
  private async rewrite(next: RecordSet, known: ReadonlyMap<string, Value>): Promise<void> {
    const order = new Map([...known.keys()].map((id, index) => [id, index]));
    for (const [position, value] of next.values.entries()) {
      const before = known.get(value.id);
      if (!before) continue;
      const same = before.content === value.content && before.digest.equals(value.digest);
      if (same && order.get(value.id) === position) continue;
      await this.tx.query(
        'update record set content = $2, rdata = $3, digest = $4, position = $5::int where id = $1::uuid',
        [value.id, value.content, value.rdata, value.digest, position],
      );
    }
  }

  private async insert(set: RecordSet, values: readonly Value[]): Promise<void> {
    const place = new Map(set.values.map(({ id }, index) => [id, index]));
    const rows = values.map((value) => ({
      id: value.id,
      content: value.content,
      rdata: value.rdata.toString('hex'),
      digest: value.digest.toString('hex'),
      owner: value.owner,
      position: place.get(value.id)!,
    }));
    await this.tx.query(
      `insert into record (id, account_id, zone_id, rrset_id, content, rdata, digest, owner, position)
       select v.id, $1::uuid, $2::uuid, $3::uuid, v.content, decode(v.rdata, 'hex'), decode(v.digest, 'hex'), v.owner, v.position
       from json_to_recordset($4::json) as v (id uuid, content text, rdata text, digest text, owner text, position int)
       order by v.position`,
      [this.zone.account_id, this.zone.id, set.id, JSON.stringify(rows)],
    );
    this.count(set.name, values.length);
  }
}
