import { Inject, Injectable } from '@nestjs/common';
import type { RegionInfo } from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { ApiError, ConfigError, conflict, fieldError, RUNTIME, type Runtime } from '@nebo/service-kit';
import { Regions } from '../shared/regions.js';
import { overlap, type Subnet, subnetOf } from '../vpcs/subnet.js';

/** A range for documentation: no packet of the internet is ever meant for it. */
const documentation = '203.0.113.0/24';
/** Ranges in which no machine of the internet can have an address: this network, loopback, multicast and what is kept. */
const unusable = ['0.0.0.0/8', '127.0.0.0/8', '224.0.0.0/3'].map((range) => subnetOf(range)!);
/** Largest range, as a prefix length. */
const largest = 16;

/** A range of a region's pool, in addresses. */
export interface PoolRange {
  region_id: string;
  range: string;
  total: number;
  held: number;
  free: number;
}

/** The public addresses of regions. */
@Injectable()
export class AddressPool {
  /** Of the default region. */
  private readonly range: Subnet;

  constructor(
    @Inject(RUNTIME) { config }: Runtime,
    private readonly database: Database,
    private readonly regions: Regions,
  ) {
    const text = config.text('NEBO_FLOATING_RANGE', documentation);
    const range = subnetOf(text);
    if (range === null || range.prefix < largest)
      throw new ConfigError(`NEBO_FLOATING_RANGE: "${text}" is not an IPv4 range of at most 65536 addresses`);
    this.range = range;
  }

  /**
   * Gives the address that nobody holds longest; two at once get two.
   * @throws ApiError 503 `no_capacity` when the region has none left
   */
  async take(tx: Sql, region: RegionInfo, holder: string): Promise<string> {
    const known = await this.next(tx, region, holder);
    if (known !== null) return known;
    const address = (await this.fill(tx, region)) ? await this.next(tx, region, holder) : null;
    if (address === null)
      throw new ApiError(503, 'no_capacity', 'the region has no public address left', {
        headers: { 'retry-after': '60' },
      });
    return address;
  }

  /** Takes an address back; nobody gets it again before those that lie longer. */
  async giveBack(tx: Sql, holder: string): Promise<void> {
    await tx.query('update pool_address set held_by = null, freed_at = now() where held_by = $1::uuid', [
      holder,
    ]);
  }

  /**
   * The operator's range for a region. Once there is one, addresses for documentation are given to nobody any more.
   * @throws ApiError 404 for an unknown region, 422 for what is no usable range, 409 `range_overlaps` whatever region has it
   */
  async add(regionId: string, text: string): Promise<PoolRange> {
    const region = await this.regions.choose(regionId, 'region');
    const range = subnetOf(text);
    if (range === null)
      throw fieldError('range', 'must be an IPv4 range whose host bits are zero, like 198.51.100.0/24');
    if (range.prefix < largest) throw fieldError('range', `must be at most a /${largest}`);
    if (unusable.some((other) => overlap(other, range)))
      throw fieldError('range', 'has addresses that no machine can have');
    return this.database.transaction(async (tx) => {
      await holdRanges(tx);
      await this.fillDefault(tx);
      const [other] = await tx.query<{ range: string }>(
        'select range::text as range from pool_range where range && $1::cidr limit 1',
        [range.cidr],
      );
      if (other)
        throw conflict('range_overlaps', `${range.cidr} overlaps with ${other.range}, which a pool has`);
      await insertRange(tx, region.id, range);
      return (await rangesOf(tx)).find((each) => each.range === range.cidr)!;
    });
  }

  /** All ranges of all regions, with how much of them is held. */
  list(): Promise<PoolRange[]> {
    return this.database.transaction(async (tx) => {
      await holdRanges(tx);
      await this.fillDefault(tx);
      return rangesOf(tx);
    });
  }

  private async next(tx: Sql, { id }: RegionInfo, holder: string): Promise<string | null> {
    const [row] = await tx.query<{ address: string }>(
      `update pool_address set held_by = $2::uuid
       where (region_id, address) = (
         select a.region_id, a.address from pool_address a where a.region_id = $1::uuid and a.held_by is null
           and (not a.address <<= $3::cidr
             or not exists (select 1 from pool_range r where r.region_id = $1::uuid and r.range <> $3::cidr))
         order by a.freed_at nulls first, a.address limit 1 for update skip locked)
       returning host(address) as address`,
      [id, holder, documentation],
    );
    return row?.address ?? null;
  }

  /** The default region has the range of the setting; what a larger one brings is added, nothing is taken away. */
  private async fill(tx: Sql, region: RegionInfo): Promise<boolean> {
    if (!region.is_default) return false;
    await insertRange(tx, region.id, this.range);
    return true;
  }

  private async fillDefault(tx: Sql): Promise<void> {
    const region = await this.regions.default();
    if (region) await this.fill(tx, region);
  }
}

/** Changes of ranges follow each other. */
async function holdRanges(tx: Sql): Promise<void> {
  await tx.query("select pg_advisory_xact_lock(hashtextextended('pool_range', 0))::text as held");
}

async function insertRange(tx: Sql, regionId: string, range: Subnet): Promise<void> {
  await tx.query(
    'insert into pool_range (region_id, range) values ($1::uuid, $2::cidr) on conflict do nothing',
    [regionId, range.cidr],
  );
  await tx.query(
    `insert into pool_address (region_id, address)
     select $1::uuid, host($2::cidr)::inet + number from generate_series(0, $3::int - 1) number on conflict do nothing`,
    [regionId, range.cidr, range.broadcast - range.network + 1],
  );
}

/** Numbers of addresses; of two ranges of the setting that overlap each address counts in both. */
const rangesOf = (tx: Sql): Promise<PoolRange[]> =>
  tx.query<PoolRange>(
    `select r.region_id, r.range::text as range, count(*)::int as total, count(a.held_by)::int as held,
       (count(*) - count(a.held_by))::int as free
     from pool_range r join pool_address a on a.region_id = r.region_id and a.address <<= r.range
     group by 1, 2, r.created_at order by r.created_at, 2`,
  );
