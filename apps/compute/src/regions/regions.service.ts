import { randomBytes, randomUUID } from 'node:crypto';
import { Inject, Injectable, type OnApplicationBootstrap } from '@nestjs/common';
import type { RegionInfo, ResolvedAgent } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { conflict, notFound, RUNTIME, type Runtime } from '@nebo/service-kit';

/** Regions and the tokens of their agents. */
@Injectable()
export class RegionsService implements OnApplicationBootstrap {
  constructor(
    private readonly database: Database,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  /** An installation has a region from its first start; replicas that start together make one. */
  async onApplicationBootstrap(): Promise<void> {
    await this.database.query(
      `insert into region (id, name, is_default) select $1, $2, true where not exists (select 1 from region)
       on conflict do nothing`,
      [randomUUID(), this.runtime.config.text('NEBO_REGION', 'local')],
    );
  }

  /** All regions, the default one first. */
  list(): Promise<RegionInfo[]> {
    return this.database.query<RegionInfo>(
      'select id, name, is_default from region order by is_default desc, name',
    );
  }

  /**
   * Adds a region.
   * @throws ApiError 409 when the name is taken
   */
  async add(name: string): Promise<RegionInfo> {
    const [region] = await this.database.query<RegionInfo>(
      `insert into region (id, name, is_default) values ($1, $2, false)
       on conflict (name) do nothing returning id, name, is_default`,
      [randomUUID(), name],
    );
    if (!region) throw conflict('name_taken', `a region named "${name}" exists`);
    return region;
  }

  /**
   * Mints a region's agent token, which replaces an earlier one. Shown once; the database holds its keyed hash.
   * @throws ApiError 404 for an unknown region
   */
  async mintToken(regionId: string): Promise<{ id: string; token: string }> {
    const token = `nebo_region_${randomBytes(32).toString('base64url')}`;
    const rows = await this.database.query<{ id: string }>(
      'update region set token_hash = $2, epoch = epoch + 1 where id = $1::uuid returning id',
      [regionId, this.runtime.masterKey.hashKey(token)],
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

  /** An agent takes the region: agents before it get 409 from now on. */
  async takeOver(regionId: string): Promise<ResolvedAgent> {
    const [region] = await this.database.query<ResolvedAgent>(
      'update region set epoch = epoch + 1, agent_at = now() where id = $1::uuid returning id as region_id, epoch',
      [regionId],
    );
    if (!region) throw notFound();
    return region;
  }
}
