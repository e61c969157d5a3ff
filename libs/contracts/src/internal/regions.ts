/** A region, as services see it. `GET /internal/v1/regions` at compute. */
export interface RegionInfo {
  id: string;
  name: string;
  is_default: boolean;
}

/** `POST /internal/v1/agents/resolve {token}` at compute: whose token it is, and the newest epoch. 404 for an unknown one. */
export interface ResolvedAgent {
  region_id: string;
  epoch: number;
}
