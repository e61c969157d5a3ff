import type {
  Inventory,
  InventoryItem,
  ReconcileReport,
  RegionInfo,
  RegionInventory,
  RegionThing,
} from '@nebo/contracts';

/** All that services and regions say that there is, each at its own moment. */
export interface Snapshot {
  /** Of networking, compute, apps-builder and identity-billing. */
  items: InventoryItem[];
  /** What each region's host has; null: its agent did not answer. */
  regions: ReadonlyMap<string, RegionThing[] | null>;
  /** What the ledger's own comparison found. */
  ledger: ReconcileReport['differences'];
}

/** Asks an operator's path of a service, `GET` unless there is a body. */
export type Ask = <T>(service: string, path: string, body?: object) => Promise<T>;

/** The operator's door of a running installation. @throws Error with what it answered */
export function operatorDoor(url: string, token: string): Ask {
  return async <T>(service: string, path: string, body?: object): Promise<T> => {
    const answer = await fetch(`${url}/operator/v1/${service}${path}`, {
      method: body ? 'POST' : 'GET',
      headers: { authorization: `Bearer ${token}`, ...(body ? { 'content-type': 'application/json' } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {}),
    }).catch((cause: unknown) => {
      throw new Error(`Nebo does not answer at ${url}`, { cause });
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${service}${path}: ${answer.status} ${text.slice(0, 300)}`);
    return JSON.parse(text) as T;
  };
}

/** Services that keep an inventory. */
const services = ['compute', 'apps-builder', 'networking', 'identity-billing'];

/**
 * Asks everybody.
 * @param agentMs how long a region's agent may take to answer
 */
export async function takeSnapshot(ask: Ask, agentMs: number): Promise<Snapshot> {
  const regions = await ask<RegionInfo[]>('compute', '/regions');
  // Hosts first: what a service has begun meanwhile is not missed on a host that was looked at before it.
  const hosts = await Promise.all(
    regions.map(async ({ id }) => [id, await thingsOf(ask, id, agentMs)] as const),
  );
  const items: InventoryItem[] = [];
  for (const service of services) items.push(...(await inventoryOf(ask, service)));
  const { differences } = await ask<ReconcileReport>('identity-billing', '/reconcile', {});
  return { items, regions: new Map(hosts), ledger: differences };
}

async function inventoryOf(ask: Ask, service: string): Promise<InventoryItem[]> {
  const items: InventoryItem[] = [];
  let after: string | null = null;
  do {
    const query: string = after === null ? '' : `?after=${encodeURIComponent(after)}`;
    const page: Inventory = await ask<Inventory>(service, `/inventory${query}`);
    items.push(...page.items);
    after = page.next;
  } while (after !== null);
  return items;
}

async function thingsOf(ask: Ask, region: string, agentMs: number): Promise<RegionThing[] | null> {
  const path = `/regions/${region}/inventory`;
  const { number } = await ask<{ number: number }>('compute', path, {});
  const end = Date.now() + agentMs;
  const things: RegionThing[] = [];
  for (let after: string | null = null; ;) {
    const query: string = after === null ? '' : `&after=${encodeURIComponent(after)}`;
    const page: RegionInventory = await ask<RegionInventory>('compute', `${path}?number=${number}${query}`);
    if (page.answered) {
      things.push(...page.things);
      after = page.next;
      if (after === null) return things;
    } else {
      if (Date.now() > end) return null;
      await new Promise((done) => setTimeout(done, 50));
    }
  }
}
