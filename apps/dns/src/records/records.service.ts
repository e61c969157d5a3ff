import { Injectable } from '@nestjs/common';
import {
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  type V1DNSRecord,
  type V1DNSRecordCreate,
  type V1DNSRecordUpdate,
} from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { conflict, type IdempotentRequest, notFound, once, pathId } from '@nebo/service-kit';
import { recordName } from '../data/names.js';
import { sayAct } from '../events.js';
import {
  checkPlace,
  managed,
  refuseManaged,
  requireContent,
  requireName,
  requireType,
} from '../rrsets/set-rules.js';
import {
  isManaged,
  newValue,
  readSets,
  type RecordSet,
  SetChanges,
  setsAt,
  type Value,
} from '../rrsets/set-store.js';
import { findZone, type ZoneRow } from '../zones/zone.rows.js';

/** A row of `record`, joined with its set. */
interface RecordRow {
  id: string;
  zone_id: string;
  name: string;
  type: string;
  content: string;
  ttl: number | null;
  managed: boolean;
}

const columns = 'r.id, r.zone_id, s.name, s.type, r.content, s.ttl, r.owner is not null as managed';

/** Records: the values of sets, one by one. The same data as `RrsetsService` shows. */
@Injectable()
export class RecordsService {
  constructor(private readonly database: Database) {}

  /** A page, oldest first; filters are exact. @throws ApiError 404 */
  async list(
    { account_id }: KeyIdentity,
    zoneId: string,
    filter: { name?: string | null; type?: string | null },
    page: PageQuery,
  ): Promise<PageOf<V1DNSRecord>> {
    return this.database.transaction(async (tx) => {
      const zone = await findZone(tx, account_id, zoneId);
      const name = filter.name ? recordName(filter.name, zone.name) : null;
      // What cannot be a name of this zone has no records.
      if (filter.name && name === null) return pageOf([], 0, page);
      const narrowed = [zone.id, name, filter.type ? filter.type.toUpperCase() : null];
      const where = `r.zone_id = $1::uuid and ($2::text is null or s.name = $2) and ($3::text is null or s.type = $3)`;
      let total = zone.record_count;
      if (name !== null || filter.type) {
        const [counted] = await tx.query<{ total: number }>(
          `select count(*)::int as total from record r join rrset s on s.id = r.rrset_id where ${where}`,
          narrowed,
        );
        total = counted!.total;
      }
      const rows = await tx.query<RecordRow>(
        `select ${columns} from record r join rrset s on s.id = r.rrset_id where ${where}
         order by r.seq limit $4::int offset $5::int`,
        [...narrowed, page.limit, page.offset],
      );
      return pageOf(rows, total, page);
    }, account_id);
  }

  /** @throws ApiError 404 */
  async get({ account_id }: KeyIdentity, zoneId: string, id: string): Promise<V1DNSRecord> {
    return this.database.transaction(async (tx) => {
      const zone = await findZone(tx, account_id, zoneId);
      const [row] = await tx.query<RecordRow>(
        `select ${columns} from record r join rrset s on s.id = r.rrset_id where r.id = $1::uuid and r.zone_id = $2::uuid`,
        [pathId(id), zone.id],
      );
      if (!row) throw notFound();
      return row;
    }, account_id);
  }

  /**
   * Adds a value to the set of its name and type, or makes the set.
   * @throws ApiError 404, 422 for name, type or content, 409 `dns_record_exists`, `dns_cname_conflict`,
   *   `dns_record_managed`, `dns_limit`
   */
  async create(
    caller: KeyIdentity,
    zoneId: string,
    body: V1DNSRecordCreate,
    idem: IdempotentRequest | null,
  ): Promise<V1DNSRecord> {
    const { account_id } = caller;
    const answer = await this.database.transaction(
      (tx) =>
        once(tx, idem, async () => {
          const zone = await findZone(tx, account_id, zoneId, true);
          const type = requireType(body.type);
          const name = requireName(body.name, zone);
          checkPlace(name, type, zone);
          const value = newValue(body.content, requireContent(type, body.content, name, 'content'));
          const changes = new SetChanges(tx, zone);
          const set = await this.add(tx, zone, changes, { name, type }, value, body.ttl ?? undefined, null);
          await changes.done();
          await sayAct(tx, caller, 'dns_create_dns_record', zone.id, { name, type });
          return { status: 201, body: recordOf(set, value) };
        }),
      account_id,
    );
    return answer.body;
  }

  /** @param ttl undefined: the set's @param freshTtl of a set that is new and has no `ttl` */
  private async add(
    tx: Sql,
    zone: ZoneRow,
    changes: SetChanges,
    { name, type }: Pick<RecordSet, 'name' | 'type'>,
    value: Value,
    ttl: number | null | undefined,
    freshTtl: number | null,
  ): Promise<RecordSet> {
    const set = (await setsAt(tx, zone, name)).find((one) => one.type === type);
    if (!set) return changes.make({ name, type, ttl: ttl === undefined ? freshTtl : ttl, values: [value] });
    if (set.values.some(({ digest }) => digest.equals(value.digest))) throw duplicate(set);
    if (type === 'CNAME')
      throw conflict('dns_cname_conflict', `${name} has a CNAME already: it has one value`);
    // Values of TXT stand beside others': a domain has the marks of many services.
    if (isManaged(set) && (type !== 'TXT' || (ttl !== undefined && ttl !== set.ttl))) throw managed(set);
    return changes.replace(set, { ttl: ttl === undefined ? set.ttl : ttl, values: [...set.values, value] });
  }

  /**
   * Changes a record. With another name or type it moves into that set; a TTL is the whole set's.
   * @throws ApiError as `create`
   */
  async update(
    caller: KeyIdentity,
    zoneId: string,
    id: string,
    body: V1DNSRecordUpdate,
  ): Promise<V1DNSRecord> {
    const { account_id } = caller;
    const recordId = pathId(id);
    return this.database.transaction(async (tx) => {
      const zone = await findZone(tx, account_id, zoneId, true);
      const [set, before] = await this.held(tx, zone, recordId);
      const type = body.type == null ? set.type : requireType(body.type);
      const name = body.name == null ? set.name : requireName(body.name, zone);
      checkPlace(name, type, zone);
      const text = body.content ?? before.content;
      const { rdata, digest } = requireContent(type, text, name, body.content == null ? 'type' : 'content');
      const value: Value = { ...before, content: text, rdata, digest };
      const changes = new SetChanges(tx, zone);
      const rest = set.values.filter((other) => other.id !== before.id);
      let after: RecordSet;
      if (name === set.name && type === set.type) {
        if (rest.some((other) => other.digest.equals(digest))) throw duplicate(set);
        const ttl = body.ttl === undefined ? set.ttl : body.ttl;
        if (ttl !== set.ttl) refuseManaged(set);
        const values = set.values.map((other) => (other.id === before.id ? value : other));
        after = await changes.replace(set, { ttl, values });
      } else {
        await changes.replace(set, { ttl: set.ttl, values: rest });
        after = await this.add(tx, zone, changes, { name, type }, value, body.ttl, set.ttl);
      }
      await changes.done();
      await sayAct(tx, caller, 'dns_update_dns_record', zone.id, { record_id: recordId, name, type });
      return recordOf(after, value);
    }, account_id);
  }

  /** @throws ApiError 404, 409 `dns_record_managed` */
  async delete(caller: KeyIdentity, zoneId: string, id: string): Promise<void> {
    const { account_id } = caller;
    const recordId = pathId(id);
    await this.database.transaction(async (tx) => {
      const zone = await findZone(tx, account_id, zoneId, true);
      const [set, value] = await this.held(tx, zone, recordId);
      const changes = new SetChanges(tx, zone);
      await changes.replace(set, {
        ttl: set.ttl,
        values: set.values.filter((other) => other.id !== value.id),
      });
      await changes.done();
      const { name, type } = set;
      await sayAct(tx, caller, 'dns_delete_dns_record', zone.id, { record_id: recordId, name, type });
    }, account_id);
  }

  /** A record of the account's own with its set, in a zone whose row is held. */
  private async held(tx: Sql, zone: ZoneRow, id: string): Promise<[RecordSet, Value]> {
    const where = 's.id = (select rrset_id from record where id = $1::uuid and zone_id = $2::uuid)';
    const [set] = await readSets(tx, where, [id, zone.id]);
    const value = set?.values.find((one) => one.id === id);
    if (!set || !value) throw notFound();
    if (value.owner !== null) throw managed(set);
    return [set, value];
  }
}

const duplicate = ({ name, type }: RecordSet) =>
  conflict('dns_record_exists', `${name} has this ${type} record already`);

const recordOf = ({ zone_id, name, type, ttl }: RecordSet, { id, content, owner }: Value): V1DNSRecord => ({
  id,
  zone_id,
  name,
  type,
  content,
  ttl,
  managed: owner !== null,
});
