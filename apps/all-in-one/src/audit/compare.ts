import type { InventoryItem, RegionThing } from '@nebo/contracts';
import { doorOf } from '@nebo/region-agent';
import type { Snapshot } from './snapshot.js';

/** What does not fit together. */
export interface Difference {
  /** Which rule found it, and `kind:id` of the thing. */
  rule: string;
  thing: string;
  /** What is wrong, in a sentence with ids. */
  text: string;
}

/** A thing on its way from one state to another: nothing about it counts as lost yet. */
export interface UnderWay {
  thing: string;
  state: string;
}

export interface Comparison {
  differences: Difference[];
  under_way: UnderWay[];
  /** Things that were compared, by kind. */
  counted: Record<string, number>;
}

/** States in which a thing rests; in every other one it is under way. A kind that is not named has no states of its own. */
const resting: Readonly<Record<string, readonly string[]>> = {
  vm: ['living', 'error', 'overdue', 'remains'],
  backup: ['ready', 'failed'],
  renewal: ['done', 'dropped'],
  resize: ['done', 'undone'],
  vm_span: ['open', 'closed'],
  vpc: ['active', 'error'],
  nat_gateway: ['attached', 'error'],
  floating_ip: ['available', 'attached', 'error'],
  span: ['open'],
  app: ['there', 'deleted'],
  // Refused: it has no address and waits for the end of what wanted one.
  app_port: ['held', 'refused', 'lost'],
  replica: ['wanted'],
  job_run: ['queued', 'running'],
  reservation: ['overdue'],
};

/** Kinds that some inventory lists: a reference to another kind cannot be followed. */
const listed = new Set([
  ...['vm', 'vm_span', 'renewal', 'resize', 'backup', 'image', 'blob'],
  ...['vpc', 'port', 'reserved_ip', 'nat_gateway', 'floating_ip', 'span', 'pool_address'],
  ...['app', 'app_port', 'replica', 'job_run'],
  ...['billing_span', 'region'],
]);

/** The address of a floating IP; nothing of other things. */
const addressOf = ({ refers }: InventoryItem) =>
  refers.find((ref) => ref.startsWith('pool_address:'))?.split('/')[1];

const nameOf = ({ kind, id }: Pick<InventoryItem, 'kind' | 'id'>) => `${kind}:${id}`;
const isUnderWay = ({ kind, state }: InventoryItem): boolean =>
  state !== null && resting[kind] !== undefined && !resting[kind].includes(state);

/** Compares what services, regions and the ledger say. Pure: asked again with the same words it says the same. */
export function compare({ items, regions, ledger }: Snapshot): Comparison {
  return new Comparing(items, regions, ledger).run();
}

class Comparing {
  private readonly byName = new Map<string, InventoryItem>();
  /** Ports by the name of their device on a host. */
  private readonly doors = new Map<string, InventoryItem>();
  private readonly found: Difference[] = [];
  private readonly counted: Record<string, number> = {};

  constructor(
    private readonly items: readonly InventoryItem[],
    private readonly regions: Snapshot['regions'],
    private readonly ledger: Snapshot['ledger'],
  ) {
    for (const item of items) {
      this.byName.set(nameOf(item), item);
      if (item.kind === 'port') this.doors.set(doorOf(item.id), item);
    }
  }

  run(): Comparison {
    for (const item of this.items) {
      this.count(item.kind);
      if (isUnderWay(item)) continue;
      this.references(item);
      this.oneByOne(item);
    }
    for (const [region, things] of this.regions) {
      if (things === null) this.silent(region);
      else this.region(region, things);
    }
    for (const { account_id, subject, recorded, computed } of this.ledger)
      this.say(
        'ledger',
        `account:${account_id}`,
        `of account ${account_id} ${subject} is ${recorded}, its ledger says ${computed}`,
      );
    const under_way = this.items
      .filter(isUnderWay)
      .map((item) => ({ thing: nameOf(item), state: item.state! }));
    return { differences: this.found, under_way, counted: this.counted };
  }

  private say(rule: string, thing: string, text: string): void {
    this.found.push({ rule, thing, text });
  }

  private count(kind: string): void {
    this.counted[kind] = (this.counted[kind] ?? 0) + 1;
  }

  /** What a thing names must be there. */
  private references(item: InventoryItem): void {
    for (const name of item.refers) {
      const [kind, ...rest] = name.split(':');
      const id = rest.join(':');
      const isThere = kind === 'region' ? this.regions.has(id) : this.byName.has(name);
      if (listed.has(kind!) && !isThere)
        this.say(
          `${item.kind} without ${kind}`,
          nameOf(item),
          `${nameOf(item)} names ${name}, which does not exist`,
        );
    }
  }

  /** What must be said of a thing by others. */
  private oneByOne(item: InventoryItem): void {
    const { kind, id, state, refers } = item;
    const name = nameOf(item);
    if (kind === 'port') {
      const owner = refers
        .map((ref) => this.byName.get(ref))
        .find((one) => one?.kind === 'vm' || one?.kind === 'app');
      if (owner && !isUnderWay(owner) && !owner.refers.includes(name))
        this.say('port nobody uses', name, `${name} belongs to ${nameOf(owner)}, which does not know it`);
    }
    if (kind === 'app_port' && state === 'lost')
      this.say(
        'port nobody gives back',
        name,
        `${name} is kept by apps-builder, and nothing there looks after it`,
      );
    if (kind === 'floating_ip' && !refers.some((ref) => ref.startsWith('span:')))
      this.say('floating IP without span', name, `${name} is charged to nobody: it has no open span`);
    if ((kind === 'span' || kind === 'vm_span') && state === 'open' && !this.byName.has(`billing_span:${id}`))
      this.say('span without charge', name, `${name} is open, but billing charges nothing for it`);
    if (kind === 'billing_span') this.charged(item);
    if (kind === 'vm' && (state === 'overdue' || state === 'remains'))
      this.say('late', name, `${name} waits for its region beyond its time (${state})`);
    if (kind === 'reservation')
      this.say('reservation left', name, `${name} still holds money after its time`);
  }

  /** A span that billing charges must be somebody's: a floating IP's at networking, a machine's at compute. */
  private charged(item: InventoryItem): void {
    const resource = item.refers.find((ref) => ref.startsWith('floating_ip:') || ref.startsWith('vm:'));
    if (resource === undefined) return;
    const source = resource.startsWith('vm:') ? 'vm_span' : 'span';
    const known = this.byName.get(`${source}:${item.id}`);
    if (!known || known.state === 'closed')
      this.say(
        'charge without span',
        nameOf(item),
        `billing charges span ${item.id} of ${resource}, which nobody has open`,
      );
  }

  private silent(region: string): void {
    const lies = this.items.filter(({ refers }) => refers.includes(`region:${region}`)).length;
    if (lies > 0)
      this.say(
        'region silent',
        `region:${region}`,
        `region ${region} did not say what its host has; ${lies} things of it could not be compared`,
      );
  }

  private region(region: string, things: readonly RegionThing[]): void {
    const has = new Set(things.map(({ kind, id }) => `${kind}:${id}`));
    for (const item of this.items) {
      if (isUnderWay(item) || !this.liesIn(item, region)) continue;
      const { kind, id, state } = item;
      const thing =
        kind === 'vm' && state === 'living'
          ? `machine:${id}`
          : kind === 'vpc' && state === 'active'
            ? `network:${id}`
            : kind === 'floating_ip' && state === 'attached'
              ? `floating_ip:${id}`
              : null;
      const isThere = thing === null || has.has(thing) || has.has(`address:${addressOf(item)}`);
      if (!isThere)
        this.say(
          'not in the region',
          nameOf(item),
          `${nameOf(item)} is ${state}, but region ${region} has no ${thing}`,
        );
    }
    for (const thing of things) {
      this.count(`host ${thing.kind}`);
      this.onHost(region, thing);
    }
  }

  private onHost(region: string, { kind, id, of, state }: RegionThing): void {
    const name = `${kind}:${id}`;
    const at = `host of region ${region}: ${kind} ${id}${state === null ? '' : ` (${state})`}`;
    if (of === null) return this.say('nobody’s on the host', name, `${at} belongs to nothing that is known`);
    const owner = this.ownerOf(region, { kind, id, of });
    if (!owner) return this.say('not wanted', name, `${at} is there for ${of}, which does not exist`);
    if (isUnderWay(owner)) return;
    // What could not be made is taken away again, and keeps nothing there.
    const keeps =
      kind === 'floating_ip' || kind === 'address'
        ? owner.state !== 'available'
        : !(owner.kind === 'vm' && owner.state === 'error');
    if (!keeps)
      this.say(
        'not wanted',
        name,
        `${at} is there for ${nameOf(owner)}, which is ${owner.state} and needs none`,
      );
  }

  /** The thing that something on a host is there for. */
  private ownerOf(
    region: string,
    { kind, id, of }: Pick<RegionThing, 'kind' | 'id'> & { of: string },
  ): InventoryItem | undefined {
    if (kind === 'floating_ip') return this.byName.get(`${kind}:${id}`);
    if (kind === 'address') {
      const held = this.byName.get(`pool_address:${region}/${id}`)?.refers[0];
      return held === undefined ? undefined : this.byName.get(held);
    }
    if (kind === 'link') {
      // Devices have short names: a port's is known by the port alone, also while its network lives.
      const vpc = this.byName.get(of);
      return vpc && isUnderWay(vpc) ? vpc : this.doors.get(id);
    }
    return this.byName.get(of);
  }

  /** Whether a thing lies in a region, by its own word or that of what it lies in. */
  private liesIn(item: InventoryItem, region: string): boolean {
    if (item.refers.includes(`region:${region}`)) return true;
    return item.refers.some(
      (ref) => ref.startsWith('vpc:') && this.byName.get(ref)?.refers.includes(`region:${region}`) === true,
    );
  }
}
