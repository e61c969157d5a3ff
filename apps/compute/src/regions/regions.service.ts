import { randomBytes, randomUUID } from 'node:crypto';
import { Inject, Injectable, type OnApplicationBootstrap } from '@nestjs/common';
import type { OperatorRegion, RegionCapacity, RegionInfo, ResolvedAgent } from '@nebo/contracts';
import { start, wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { conflict, idOrNull, notFound, referenceNotFound, RUNTIME, type Runtime } from '@nebo/service-kit';
import { Capacity } from './capacity.service.js';

/** Regions and the tokens of their agents. */
@Injectable()
export class RegionsService implements OnApplicationBootstrap {
  constructor(
    private readonly database: Database,
    private readonly capacity: Capacity,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  /** An installation has a region from its first start; replicas that start together make one. */
  async onApplicationBootstrap(): Promise<void> {
    await this.database.query(
      `insert into region (id, name, is_default) select $1, $2, true where not exists (select 1 from region)
       on conflict do nothing`,
      [randomUUID(), this.runtime.config.text('NEBO_REGION', 'local')],
    );
    await this.database.transaction(async (tx) => {
      await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))::text as held', ['region_queue']);
      const idle = await tx.query<{ id: string }>(
        "select id from region r where not exists (select 1 from lifecycle l where l.kind = 'region_queue' and l.id = r.id)",
      );
      for (const { id } of idle) await start(tx, 'region_queue', id, 'watching');
    });
  }

  /** All regions, the default one first. */
  list(): Promise<RegionInfo[]> {
    return this.database.query<RegionInfo>(
      'select id, name, is_default from region order by is_default desc, name',
    );
  }

  /** The region that a body names. @throws ApiError 404 naming the field */
  async find(id: string | null, sql: Sql): Promise<RegionInfo> {
    const [region] = await sql.query<RegionInfo>(
      'select id, name, is_default from region where id = $1::uuid',
      [id],
    );
    if (!region) throw referenceNotFound('cluster_id');
    return region;
  }

  /** All regions with what they can hold and what of it is taken, the default one first. */
  async listForOperator(): Promise<OperatorRegion[]> {
    type Row = RegionInfo &
      Record<'vcpu' | 'memory_mb' | 'disk_gb' | 'machines' | 'queued', number> & {
        capacity: RegionCapacity | null;
      };
    const rows = await this.database.query<Row>(
      `select r.id, r.name, r.is_default, u.vcpu::float8 as vcpu, u.memory_mb::float8 as memory_mb, u.disk_gb::float8 as disk_gb,
         u.machines::float8 as machines, u.queued::float8 as queued,
         case when r.capacity_vcpu is not null then json_build_object('vcpu', r.capacity_vcpu,
           'memory_mb', r.capacity_memory_mb, 'disk_gb', r.capacity_disk_gb) end as capacity
       from region r join region_use u on u.region_id = r.id order by r.is_default desc, r.name`,
    );
    return rows.map(({ id, name, is_default, capacity, machines, queued, vcpu, memory_mb, disk_gb }) => ({
      id,
      name,
      is_default,
      capacity,
      used: { vcpu, memory_mb, disk_gb },
      vcpu_overcommit: this.capacity.overcommit,
      machines,
      queued,
    }));
  }

  /**
   * Adds a region.
   * @throws ApiError 409 when the name is taken
   */
  add(name: string): Promise<RegionInfo> {
    return this.database.transaction(async (tx) => {
      const [region] = await tx.query<RegionInfo>(
        `insert into region (id, name, is_default) values ($1, $2, false)
         on conflict (name) do nothing returning id, name, is_default`,
        [randomUUID(), name],
      );
      if (!region) throw conflict('name_taken', `a region named "${name}" exists`);
      await start(tx, 'region_queue', region.id, 'watching');
      return region;
    });
  }

  /**
   * Mints a region's agent token, which replaces an earlier one. Shown once; the database holds its keyed hash.
   * @throws ApiError 404 for an unknown region
   */
  async mintToken(regionId: string): Promise<{ id: string; token: string }> {
    const token = `nebo_region_${randomBytes(32).toString('base64url')}`;
    const rows = await this.database.query<{ id: string }>(
      'update region set token_hash = $2, epoch = epoch + 1 where id = $1::uuid returning id',
      [idOrNull(regionId), this.runtime.masterKey.hashKey(token)],
    );
    if (rows.length === 0) throw notFound();
    return { id: rows[0]!.id, token };
  }

  /**
   * Whose token it is, with the epoch of the agent that holds the region now.
   * @throws ApiError 404 for an unknown token
   */
  async resolve(token: string): Promise<ResolvedAgent> {
    const [region] = await this.database.query<ResolvedAgent>(
      'select id as region_id, epoch from region where token_hash = $1',
      [this.runtime.masterKey.hashKey(token)],
    );
    if (!region) throw notFound();
    return region;
  }

  /**
   * An agent takes the region: agents before it get 409 from now on.
   * @param capacity what the region can hold in all; null: nobody knows; absent: as it was said before
   * @throws ApiError 404
   */
  takeOver(regionId: string, capacity?: RegionCapacity | null): Promise<ResolvedAgent> {
    return this.database.transaction(async (tx) => {
      const [region] = await tx.query<ResolvedAgent>(
        `update region set epoch = epoch + 1, agent_at = now() where id = $1::uuid returning id as region_id, epoch`,
        [idOrNull(regionId)],
      );
      if (!region) throw notFound();
      if (capacity === undefined) return region;
      await tx.query(
        `update region set capacity_vcpu = $2::bigint, capacity_memory_mb = $3::bigint, capacity_disk_gb = $4::bigint
         where id = $1::uuid`,
        [regionId, capacity?.vcpu ?? null, capacity?.memory_mb ?? null, capacity?.disk_gb ?? null],
      );
      // Those that wait may have room now.
      await wake(tx, 'region_queue', regionId);
      return region;
    });
  }
}
