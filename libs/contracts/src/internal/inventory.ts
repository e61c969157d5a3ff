/**
 * `GET /internal/v1/inventory?after=<next of the page before>` at networking, compute and apps-builder: all that a service keeps of the whole
 * installation, for the audit that compares services, regions and billing. Only a service that acts for all accounts may ask.
 * A page is one moment; pages are not: what changed between them has to be looked at again before it counts as lost.
 */

/** One thing that exists, and the things that it names. */
export interface InventoryItem {
  /**
   * At networking `vpc`, `port`, `reserved_ip`, `nat_gateway`, `floating_ip`, `span`, `pool_address`; at compute `vm`, `renewal`,
   * `backup`, `image`, `blob`; at apps-builder `app`, `app_port`, `replica`, `job_run`. What a thing names may also be a `region`, or a `reservation` at identity-billing.
   */
  kind: string;
  /** A uuid; of a pool address `<region>/<address>`, of a blob its hash. */
  id: string;
  /** Null for what belongs to no account. */
  account_id: string | null;
  /** `kind:id` of what it names: each of these should exist, unless the thing itself is on its way out. */
  refers: string[];
  /** Its status, where it has one; `deleting` and `releasing` are on their way out. */
  state: string | null;
}

/** A page of an inventory. */
export interface Inventory {
  items: InventoryItem[];
  /** For `after` of the next page; null when this was the last. */
  next: string | null;
}

/**
 * One thing that an agent found on its region's host, whether or not it remembers having made it. Asked for by the audit:
 * `GET /agent/v1/compute/inventory?wait=<seconds>` tells the agent that somebody wants to know, `POST` to the same path answers.
 */
export interface RegionThing {
  /**
   * `machine` and `network` are what the drivers say that there is, `floating_ip` what they say works. All else is what lies on
   * the host itself: `process`, `namespace`, `link`, `disk`, `folder`, `file`, `lease`, `address`.
   */
  kind: string;
  /** Its name on the host; of what drivers say, the id of the thing that it was made for. */
  id: string;
  /** For whom it is there, `kind:id`; null when nothing says so. */
  of: string | null;
  state: string | null;
}

/** Answer to an agent that asks whether its region's inventory is wanted: under which number, or null. */
export interface InventoryWanted {
  number: number | null;
}

/** A part of a region's inventory, at most 2,000 things. It counts when the part with `last` has come. */
export interface InventoryPart {
  number: number;
  things: RegionThing[];
  last: boolean;
}

/**
 * `POST /internal/v1/operator/regions/{id}/inventory` at compute asks a region's agent and answers the number; `GET` with it
 * and `after` (the `next` of the page before) answers what came.
 */
export interface RegionInventory {
  /** False: the agent has not answered yet. */
  answered: boolean;
  things: RegionThing[];
  next: string | null;
}
