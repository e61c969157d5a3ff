import { Inject, Injectable } from '@nestjs/common';
import type { RegionCapacity } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';
import { ApiError, RUNTIME, type Runtime } from '@nebo/service-kit';

/** Why a region cannot take a machine, as `vm_room` says it. */
type Lack = 'vcpu' | 'memory' | 'disk' | 'queue';

const lacks: Readonly<Record<Lack, string>> = {
  vcpu: 'no processors are free for it',
  memory: 'no memory is free for it',
  disk: 'no disk space is free for it',
  queue: 'others have waited longer',
};

/** Room of regions: the sum of what has its place against what the region's agent said it can hold. */
@Injectable()
export class Capacity {
  /** How often a processor is given away: machines rarely use theirs all at once. */
  readonly overcommit: number;

  constructor(@Inject(RUNTIME) { config }: Pick<Runtime, 'config'>) {
    this.overcommit = config.int('NEBO_VCPU_OVERCOMMIT', 4, { min: 1, max: 64 });
  }

  /**
   * Whether a region has room, in the transaction that then takes it: until its end nobody else is told so.
   * @param behind whether those that wait go first
   * @returns null, or what is lacking in words for the user
   */
  async lacking(
    tx: Sql,
    regionId: string,
    { vcpu, memory_mb, disk_gb }: RegionCapacity,
    behind: boolean,
  ): Promise<string | null> {
    const [row] = await tx.query<{ lack: Lack | null }>(
      'select vm_room($1::uuid, $2::int, $3::int, $4::int, $5::int, $6::boolean) as lack',
      [regionId, vcpu, memory_mb, disk_gb, this.overcommit, behind],
    );
    return row?.lack ? lacks[row.lack] : null;
  }
}

export const noCapacity = (lacking: string) =>
  new ApiError(503, 'no_capacity', `the region has no room: ${lacking}`);
