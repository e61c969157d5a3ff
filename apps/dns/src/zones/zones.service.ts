import { randomUUID } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import {
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  toFilter,
  type V1Zone,
  type V1ZoneCreate,
  type V1ZoneUpdate,
} from '@nebo/contracts';
import { say } from '@nebo/bus';
import { Database, type Sql } from '@nebo/persistence';
import {
  ApiError,
  conflict,
  fieldError,
  type IdempotentRequest,
  idOrNull,
  notFound,
  once,
} from '@nebo/service-kit';
import { zoneName } from '../data/names.js';
import { sayAct, says } from '../events.js';
import { DelegationCheck, type Finding } from './delegation.js';
import { type DnsSettings, isReserved } from './settings.js';
import { DNS_SETTINGS } from './tokens.js';
import { countChange, findZone, zoneColumns, zoneRecord, type ZoneRow } from './zone.rows.js';

/** Most zones of an account. */
const maxZones = 1_000;

const ids = (texts: readonly string[]): string[] => texts.map(idOrNull).filter((id) => id !== null);

/** Zones: their names, default TTL and delegation. */
@Injectable()
export class ZonesService {
  constructor(
    private readonly database: Database,
    private readonly delegation: DelegationCheck,
    @Inject(DNS_SETTINGS) private readonly settings: DnsSettings,
  ) {}

  /** @throws ApiError 404 */
  async get({ account_id }: KeyIdentity, id: string): Promise<V1Zone> {
    return this.record(await this.database.transaction((tx) => findZone(tx, account_id, id), account_id));
  }

  /** A page of what the key may see, oldest first. */
  async list(
    caller: KeyIdentity,
    narrowed: { status_filter?: string | null; search?: string | null },
    page: PageQuery,
  ): Promise<PageOf<V1Zone>> {
    const filter = toFilter(caller, 'dns_zone:read', 'dns_zone');
    if (!filter.any) return pageOf([], 0, page);
    const { account_id } = caller;
    const where = `account_id = $1::uuid and ($2::uuid[] is null or id = any($2::uuid[])) and id <> all($3::uuid[])
      and ($4::text is null or status = $4) and ($5::text is null or strpos(name, $5) > 0)`;
    const values = [
      account_id,
      filter.allowProjects === null ? null : ids(filter.allowIds),
      ids(filter.denyIds),
      narrowed.status_filter || null,
      searchText(narrowed.search),
    ];
    return this.database.transaction(async (tx) => {
      const [counted] = await tx.query<{ total: number }>(
        `select count(*)::int as total from zone where ${where}`,
        values,
      );
      const rows = await tx.query<ZoneRow>(
        `select ${zoneColumns} from zone where ${where} order by created_at, id limit $6::int offset $7::int`,
        [...values, page.limit, page.offset],
      );
      return pageOf(
        rows.map((row) => this.record(row)),
        counted!.total,
        page,
      );
    }, account_id);
  }

  /**
   * Creates a zone, which is answered at once and pending until its delegation is verified.
   * @throws ApiError 422 for the name and `not_supported` for DNSSEC, 409 `zone_exists`, `zone_reserved`, `dns_limit`
   */
  async create(caller: KeyIdentity, body: V1ZoneCreate, idem: IdempotentRequest | null): Promise<V1Zone> {
    refuseDnssec(body.dnssec_enabled);
    const name = zoneName(body.name);
    if (name === null) throw fieldError('name', 'must be a domain of at least two labels like example.com');
    if (isReserved(name, this.settings))
      throw conflict('zone_reserved', `${name} lies where the platform itself gives out names`);
    const { account_id } = caller;
    const answer = await this.database.transaction(
      (tx) =>
        once(tx, idem, async () => {
          const row = await this.insert(tx, account_id, name, body.default_ttl ?? null);
          await sayAct(tx, caller, 'dns_create_zone', row.id, { name });
          return { status: 201, body: this.record(row) };
        }),
      account_id,
    );
    return answer.body;
  }

  private async insert(tx: Sql, account: string, name: string, ttl: number | null): Promise<ZoneRow> {
    // Creations of one account stand in line, so that the limit holds for parallel ones.
    await tx.query("select pg_advisory_xact_lock(hashtextextended('zones:' || $1, 0))", [account]);
    const [counted] = await tx.query<{ count: number }>(
      'select count(*)::int as count from zone where account_id = $1::uuid',
      [account],
    );
    if (counted!.count >= maxZones) throw conflict('dns_limit', `an account has at most ${maxZones} zones`);
    const [row] = await tx.query<ZoneRow>(
      // A zone that is deleted and made again goes on from a higher serial.
      `insert into zone (id, account_id, name, default_ttl, serial, status_reason)
       values ($1::uuid, $2::uuid, $3, $4::int, extract(epoch from now())::bigint, 'the delegation has not been checked yet')
       on conflict (account_id, name) do nothing returning ${zoneColumns}`,
      [randomUUID(), account, name, ttl],
    );
    if (!row) throw conflict('zone_exists', `the account has a zone ${name} already`);
    return row;
  }

  /**
   * Changes the default TTL; null is the platform's, an empty body changes nothing.
   * @throws ApiError 404, 422 `not_supported` for DNSSEC
   */
  async update(caller: KeyIdentity, id: string, body: V1ZoneUpdate): Promise<V1Zone> {
    refuseDnssec(body.dnssec_enabled);
    const { account_id } = caller;
    return this.database.transaction(async (tx) => {
      const before = await findZone(tx, account_id, id, true);
      const ttl = body.default_ttl;
      if (ttl === undefined || ttl === before.default_ttl) return this.record(before);
      await tx.query('update zone set default_ttl = $2::int where id = $1::uuid', [before.id, ttl]);
      await countChange(tx, before, null);
      await sayAct(tx, caller, 'dns_update_zone', before.id, { name: before.name, default_ttl: ttl });
      return this.record(await findZone(tx, account_id, before.id));
    }, account_id);
  }

  /**
   * Deletes a zone with its records.
   * @throws ApiError 404, 409 `zone_in_use` while the platform keeps records in it for another resource
   */
  async delete(caller: KeyIdentity, id: string): Promise<void> {
    const { account_id } = caller;
    await this.database.transaction(async (tx) => {
      const zone = await findZone(tx, account_id, id, true);
      const kept = await tx.query<{ name: string; type: string }>(
        `select distinct s.name, s.type from record r join rrset s on s.id = r.rrset_id
         where r.account_id = $1::uuid and r.zone_id = $2::uuid and r.owner is not null order by 1, 2 limit 5`,
        [account_id, zone.id],
      );
      if (kept.length > 0) {
        const words = kept.map(({ name, type }) => `${name} ${type}`).join(', ');
        throw conflict('zone_in_use', `the platform keeps records in the zone for your resources: ${words}`);
      }
      await tx.query('delete from zone where id = $1::uuid', [zone.id]);
      await sayAct(tx, caller, 'dns_delete_zone', zone.id, { name: zone.name });
      await say(
        tx,
        says.zoneStatus({ zone_id: zone.id, name: zone.name, status: 'deleted' }, { account: account_id }),
      );
    }, account_id);
  }

  /**
   * Asks the resolver who the zone is delegated to: all of our name servers make it `active`, anything else `pending` with
   * what was found. A resolver that does not answer changes no status.
   * @throws ApiError 404
   */
  async verify(caller: KeyIdentity, id: string, idem: IdempotentRequest | null): Promise<V1Zone> {
    const { account_id } = caller;
    const zone = await this.database.transaction((tx) => findZone(tx, account_id, id), account_id);
    // Nothing is held while the network is asked.
    const finding = await this.delegation.look(zone.name, this.settings.nameservers);
    const settle = (taken: boolean) =>
      this.database.transaction(
        (tx) =>
          once(tx, idem, async () => {
            const row = await this.settle(tx, account_id, zone.id, finding, taken);
            await sayAct(tx, caller, 'dns_verify_zone', row.id, { name: row.name, status: row.status });
            return { status: 200, body: this.record(row) };
          }),
        account_id,
      );
    const answer = await settle(false).catch((error: unknown) => {
      // Another account's zone of this name is active, maybe since this very moment.
      if ((error as { code?: string }).code === '23505') return settle(true);
      throw error;
    });
    return answer.body;
  }

  private async settle(
    tx: Sql,
    account: string,
    id: string,
    finding: Finding,
    taken: boolean,
  ): Promise<ZoneRow> {
    const before = await findZone(tx, account, id, true);
    const found = finding.status ?? before.status;
    const status = taken ? 'pending' : found;
    const reason =
      taken && found === 'active'
        ? 'another account has the active zone of this name; it must be deleted there first'
        : finding.reason;
    const [row] = await tx.query<ZoneRow>(
      `update zone set status = $2, status_reason = $3, updated_at = case when status = $2 then updated_at else now() end
       where id = $1::uuid returning ${zoneColumns}`,
      [before.id, status, reason],
    );
    if (!row) throw notFound();
    if (status !== before.status)
      await say(tx, says.zoneStatus({ zone_id: row.id, name: row.name, status }, { account }));
    return row;
  }

  private record(row: ZoneRow): V1Zone {
    return zoneRecord(row, this.settings.nameservers);
  }
}

function refuseDnssec(wanted: boolean | null | undefined): void {
  if (wanted !== true) return;
  throw new ApiError(422, 'not_supported', 'dnssec_enabled: DNSSEC is not supported yet', {
    detail: [{ loc: ['body', 'dnssec_enabled'], msg: 'is not supported yet', type: 'not_supported' }],
  });
}

/** Names are in lower case and ASCII; what people look for may be in their own letters. */
function searchText(text: string | null | undefined): string | null {
  const wanted = text?.trim().toLowerCase();
  if (!wanted) return null;
  return zoneName(wanted)?.replace(/\.$/, wanted.endsWith('.') ? '.' : '') ?? wanted;
}
