import { Injectable } from '@nestjs/common';
import {
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  type V1DNSRecordSet,
  type V1DNSRecordSetCreate,
  type V1DNSRecordSetUpdate,
} from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { conflict, type IdempotentRequest, notFound, once, pathId } from '@nebo/service-kit';
import { recordName } from '../data/names.js';
import { sayAct } from '../events.js';
import { findZone, type ZoneRow } from '../zones/zone.rows.js';
import { checkPlace, refuseManaged, requireName, requireType, requireValues } from './set-rules.js';
import { isManaged, readSets, type RecordSet, SetChanges } from './set-store.js';

/** Record sets: TTL and values of a name and type as one, changed only by who has seen the present revision. */
@Injectable()
export class RrsetsService {
  constructor(private readonly database: Database) {}

  /** A page, oldest first; filters are exact. @throws ApiError 404 */
  async list(
    { account_id }: KeyIdentity,
    zoneId: string,
    filter: { name?: string | null; type?: string | null },
    page: PageQuery,
  ): Promise<PageOf<V1DNSRecordSet>> {
    return this.database.transaction(async (tx) => {
      const zone = await findZone(tx, account_id, zoneId);
      const name = filter.name ? recordName(filter.name, zone.name) : null;
      if (filter.name && name === null) return pageOf([], 0, page);
      const values = [zone.id, name, filter.type ? filter.type.toUpperCase() : null];
      const where = `zone_id = $1::uuid and ($2::text is null or name = $2) and ($3::text is null or type = $3)`;
      const [counted] = await tx.query<{ total: number }>(
        `select count(*)::int as total from rrset where ${where}`,
        values,
      );
      const sets = await readSets(
        tx,
        `s.id in (select id from rrset where ${where} order by seq limit $4::int offset $5::int)`,
        [...values, page.limit, page.offset],
        's.seq',
      );
      return pageOf(sets.map(setRecord), counted!.total, page);
    }, account_id);
  }

  /** @throws ApiError 404 */
  async get({ account_id }: KeyIdentity, zoneId: string, id: string): Promise<V1DNSRecordSet> {
    return this.database.transaction(async (tx) => {
      const zone = await findZone(tx, account_id, zoneId);
      return setRecord(await findSet(tx, zone, id));
    }, account_id);
  }

  /**
   * Makes a set.
   * @throws ApiError 404, 422 for name, type or values, 409 `dns_record_exists`, `dns_cname_conflict`, `dns_limit`
   */
  async create(
    caller: KeyIdentity,
    zoneId: string,
    body: V1DNSRecordSetCreate,
    idem: IdempotentRequest | null,
  ): Promise<V1DNSRecordSet> {
    const { account_id } = caller;
    const answer = await this.database.transaction(
      (tx) =>
        once(tx, idem, async () => {
          const zone = await findZone(tx, account_id, zoneId, true);
          const type = requireType(body.type);
          const name = requireName(body.name, zone);
          checkPlace(name, type, zone);
          const values = requireValues(type, name, body.records);
          const changes = new SetChanges(tx, zone);
          const set = await changes.make({ name, type, ttl: body.ttl ?? null, values });
          await changes.done();
          await sayAct(tx, caller, 'dns_create_rrset', zone.id, { name, type, values: values.length });
          return { status: 201, body: setRecord(set) };
        }),
      account_id,
    );
    return answer.body;
  }

  /**
   * Replaces TTL and values.
   * @throws ApiError 404, 422 for values, 409 `dns_rrset_changed`, `dns_record_managed`, `dns_limit`
   */
  async replace(
    caller: KeyIdentity,
    zoneId: string,
    id: string,
    body: V1DNSRecordSetUpdate,
  ): Promise<V1DNSRecordSet> {
    const { account_id } = caller;
    return this.database.transaction(async (tx) => {
      const zone = await findZone(tx, account_id, zoneId, true);
      const before = await this.meant(tx, zone, id, body.expected_revision);
      const { name, type } = before;
      const values = requireValues(type, name, body.records, before.values);
      const changes = new SetChanges(tx, zone);
      const after = await changes.replace(before, { ttl: body.ttl ?? null, values });
      await changes.done();
      await sayAct(tx, caller, 'dns_replace_rrset', zone.id, { name, type, values: values.length });
      return setRecord(after);
    }, account_id);
  }

  /** @throws ApiError 404, 409 `dns_rrset_changed`, `dns_record_managed` */
  async delete(caller: KeyIdentity, zoneId: string, id: string, revision: string): Promise<void> {
    const { account_id } = caller;
    await this.database.transaction(async (tx) => {
      const zone = await findZone(tx, account_id, zoneId, true);
      const before = await this.meant(tx, zone, id, revision);
      const changes = new SetChanges(tx, zone);
      await changes.replace(before, { ttl: before.ttl, values: [] });
      await changes.done();
      const { name, type } = before;
      await sayAct(tx, caller, 'dns_delete_rrset', zone.id, { name, type });
    }, account_id);
  }

  /** The set that a change means, in a zone whose row is held, so that nobody changes it in between. */
  private async meant(tx: Sql, zone: ZoneRow, id: string, revision: string): Promise<RecordSet> {
    const set = await findSet(tx, zone, id);
    refuseManaged(set);
    if (set.revision !== revision.toLowerCase())
      throw conflict('dns_rrset_changed', 'the record set has changed since it was read; read it again');
    return set;
  }
}

async function findSet(tx: Sql, zone: ZoneRow, id: string): Promise<RecordSet> {
  const [set] = await readSets(tx, 's.id = $1::uuid and s.zone_id = $2::uuid', [pathId(id), zone.id]);
  if (!set) throw notFound();
  return set;
}

const setRecord = (set: RecordSet): V1DNSRecordSet => ({
  id: set.id,
  zone_id: set.zone_id,
  name: set.name,
  type: set.type,
  ttl: set.ttl,
  records: set.values.map(({ content }) => content),
  managed: isManaged(set),
  revision: set.revision,
});
