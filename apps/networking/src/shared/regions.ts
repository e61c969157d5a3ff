import { Injectable } from '@nestjs/common';
import type { RegionInfo } from '@nebo/contracts';
import { idOrNull, Peers, referenceNotFound } from '@nebo/service-kit';

/** Regions rarely change: what compute said is kept for so long, milliseconds. */
const keepMs = 10_000;

/** The regions of this installation, as compute knows them. */
@Injectable()
export class Regions {
  private known: { at: number; regions: RegionInfo[] } | undefined;

  constructor(private readonly peers: Peers) {}

  /**
   * The region that a body names.
   * @throws ApiError 404 naming the field for an unknown region, 503 when compute does not answer
   */
  async choose(wanted: string, field: string): Promise<RegionInfo> {
    const id = idOrNull(wanted);
    const region = (await this.list()).find((candidate) => candidate.id === id);
    if (!region) throw referenceNotFound(field);
    return region;
  }

  /** The region of whoever names none, or null before there is one. @throws ApiError 503 when compute does not answer */
  async default(): Promise<RegionInfo | null> {
    return (await this.list()).find(({ is_default }) => is_default) ?? null;
  }

  private async list(): Promise<RegionInfo[]> {
    if (this.known && Date.now() - this.known.at < keepMs) return this.known.regions;
    const regions = await this.peers.call<RegionInfo[]>('compute', '/internal/v1/regions', { account: null });
    // An empty answer is not kept: the first region is added right after the first start.
    this.known = regions.length > 0 ? { at: Date.now(), regions } : undefined;
    return regions;
  }
}
