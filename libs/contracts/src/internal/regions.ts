import type { RegionCapacity } from '../agent/machines.js';

/** A region, as services see it. `GET /internal/v1/regions` at compute. */
export interface RegionInfo {
  id: string;
  name: string;
  is_default: boolean;
}

/** A region, as its operator sees it (`region list`). Whole units; memory in MB, disk in GB. */
export interface OperatorRegion extends RegionInfo {
  /** What it can hold in all, as its agent said; null: nobody knows, nothing is refused for it. */
  capacity: RegionCapacity | null;
  /** What the machines take that have their place. Processors count `vcpu_overcommit` times. */
  used: RegionCapacity;
  vcpu_overcommit: number;
  machines: number;
  /** Machines that wait for room. */
  queued: number;
}

/** `POST /internal/v1/agents/{region_id}/take-over` at compute; without `capacity` what was said before stays. */
export interface TakeOverRequest {
  capacity?: RegionCapacity | null;
}

/** `POST /internal/v1/agents/resolve {token}` at compute: whose token it is, and the newest epoch. 404 for an unknown one. */
export interface ResolvedAgent {
  region_id: string;
  epoch: number;
}
