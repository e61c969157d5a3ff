import { Injectable } from '@nestjs/common';
import type { RegionInfo } from '@nebo/contracts';
import { idOrNull, Peers, referenceNotFound, unavailable } from '@nebo/service-kit';

/** Regions rarely change: what compute said is kept for so long, milliseconds. */
const keepMs = 10_000;

/** The regions of this installation, as compute knows them. */
@Injectable()
export class Regions {
  private known: { at: number; regions: RegionInfo[] } | undefined;

  constructor(private readonly peers: Peers) {}

  /**
   * The region that a body names in `cluster_id`, or the default one.
   * @throws ApiError 404 naming the field for an unknown region, 503 when compute does not answer or has none
   */
  async choose(wanted: string | null | undefined): Promise<RegionInfo> {
    const regions = await this.list();
    if (wanted === null || wanted === undefined) {
      const region = regions.find((candidate) => candidate.is_default) ?? regions[0];
      if (!region) throw unavailable('no region exists yet');
      return region;
    }
    const id = idOrNull(wanted);
    const region = regions.find((candidate) => candidate.id === id);
    if (!region) throw referenceNotFound('cluster_id');
    return region;
  }

  private async list(): Promise<RegionInfo[]> {
    if (this.known && Date.now() - this.known.at < keepMs) return this.known.regions;
    const regions = await this.peers.call<RegionInfo[]>('compute', '/internal/v1/regions', { account: null });
    // An empty answer is not kept: the first region is added right after the first start.
    this.known = regions.length > 0 ? { at: Date.now(), regions } : undefined;
    return regions;
  }
}
