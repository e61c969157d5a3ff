import { Inject, Injectable } from '@nestjs/common';
import type { RegionInfo } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';
import { ApiError, ConfigError, RUNTIME, type Runtime } from '@nebo/service-kit';
import { type Subnet, subnetOf } from '../vpcs/subnet.js';

/** A range for documentation: no packet of the internet is ever meant for it. */
const documentation = '203.0.113.0/24';

/** The public addresses of regions. */
@Injectable()
export class AddressPool {
  /** Of the default region. */
  private readonly range: Subnet;

  constructor(@Inject(RUNTIME) { config }: Runtime) {
    const text = config.text('NEBO_FLOATING_RANGE', documentation);
    const range = subnetOf(text);
    if (range === null || range.prefix < 16)
      throw new ConfigError(`NEBO_FLOATING_RANGE: "${text}" is not an IPv4 range of at most 65536 addresses`);
    this.range = range;
  }

  /**
   * Gives the address that nobody holds longest; two at once get two.
   * @throws ApiError 503 `no_capacity` when the region has none left
   */
  async take(tx: Sql, region: RegionInfo, holder: string): Promise<string> {
    const address = (await this.next(tx, region, holder)) ?? (await this.fill(tx, region, holder));
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

  private async next(tx: Sql, { id }: RegionInfo, holder: string): Promise<string | null> {
    const [row] = await tx.query<{ address: string }>(
      `update pool_address set held_by = $2::uuid
       where (region_id, address) = (
         select region_id, address from pool_address where region_id = $1::uuid and held_by is null
         order by freed_at nulls first, address limit 1 for update skip locked)
       returning host(address) as address`,
      [id, holder],
    );
    return row?.address ?? null;
  }

  /** The default region has the range of the setting; what a larger one brings is added, nothing is taken away. */
  private async fill(tx: Sql, region: RegionInfo, holder: string): Promise<string | null> {
    if (!region.is_default) return null;
    const size = this.range.broadcast - this.range.network + 1;
    await tx.query(
      `insert into pool_address (region_id, address)
       select $1::uuid, $2::inet + number from generate_series(0, $3::int - 1) number on conflict do nothing`,
      [region.id, this.range.cidr.split('/')[0]!, size],
    );
    return this.next(tx, region, holder);
  }
}
