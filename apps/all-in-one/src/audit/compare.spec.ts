import type { InventoryItem, RegionThing } from '@nebo/contracts';
import { doorOf } from '@nebo/region-agent';
import { compare } from './compare.js';
import type { Snapshot } from './snapshot.js';

const item = (kind: string, id: string, state: string | null, ...refers: string[]): InventoryItem => ({
  kind,
  id,
  account_id: 'a',
  refers,
  state,
});
const thing = (kind: string, id: string, of: string | null, state: string | null = null): RegionThing => ({
  kind,
  id,
  of,
  state,
});

/** A machine with a port in a network, a floating IP on it, a gateway, a backup: everything in its place. */
const clean = () => ({
  items: [
    item('vm', 'v', 'living', 'region:r', 'image:i', 'reservation:v', 'port:p', 'vm_span:m'),
    item('vm_span', 'm', 'open', 'vm:v'),
    item('backup', 'b', 'ready', 'vm:v', 'blob:h'),
    item('blob', 'h', 'owned', 'backup:b'),
    item('image', 'i', 'offered'),
    item('vpc', 'n', 'active', 'region:r'),
    item('port', 'p', null, 'vpc:n', 'vm:v'),
    item('port', 'g', null, 'vpc:n', 'nat_gateway:g'),
    item('reserved_ip', 'x', null, 'vpc:n', 'port:p'),
    item('nat_gateway', 'g', 'attached', 'vpc:n', 'port:g', 'floating_ip:w'),
    item('floating_ip', 'f', 'attached', 'pool_address:r/192.0.2.1', 'span:s', 'vpc:n', 'port:p'),
    item('floating_ip', 'w', 'attached', 'pool_address:r/192.0.2.2', 'span:t', 'vpc:n'),
    item('floating_ip', 'z', 'available', 'pool_address:r/192.0.2.3', 'span:u'),
    item('pool_address', 'r/192.0.2.1', 'held', 'floating_ip:f'),
    item('pool_address', 'r/192.0.2.2', 'held', 'floating_ip:w'),
    item('pool_address', 'r/192.0.2.3', 'held', 'floating_ip:z'),
    ...[['s', 'f'] as const, ['t', 'w'] as const, ['u', 'z'] as const].flatMap(([span, fip]) => [
      item('span', span, 'open', `floating_ip:${fip}`),
      item('billing_span', span, 'open', `floating_ip:${fip}`),
    ]),
    item('billing_span', 'm', 'open', 'vm:v'),
    item('billing_span', 'y', 'open', 'app:a'),
    // An app with a replica and a job run in the network.
    item('app', 'a', 'there', 'region:r', 'port:c', 'port:d'),
    item('app_port', 'c', 'held', 'app:a', 'replica:e', 'vpc:n', 'port:c'),
    item('app_port', 'd', 'held', 'app:a', 'job_run:j', 'vpc:n', 'port:d'),
    item('replica', 'e', 'wanted', 'app:a', 'app_port:c'),
    item('job_run', 'j', 'running', 'app:a', 'app_port:d'),
    item('port', 'c', null, 'vpc:n', 'app:a'),
    item('port', 'd', null, 'vpc:n', 'app:a'),
  ],
  things: [
    thing('machine', 'v', 'vm:v', 'running'),
    thing('network', 'n', 'vpc:n', 'active'),
    thing('floating_ip', 'f', 'vpc:n', 'works'),
    thing('floating_ip', 'w', 'vpc:n', 'works'),
    thing('process', 'qemu 123', 'vm:v'),
    thing('namespace', 'nebo-n', 'vpc:n'),
    thing('link', doorOf('p'), 'vpc:n'),
    thing('link', doorOf('c'), 'vpc:n'),
    thing('address', '192.0.2.1', 'vpc:n'),
  ],
});

type Clean = ReturnType<typeof clean>;

const look = (change: (all: Clean) => void = () => undefined, more: Partial<Snapshot> = {}) => {
  const all = clean();
  change(all);
  const { differences, under_way } = compare({
    items: all.items,
    regions: new Map([['r', all.things]]),
    ledger: [],
    ...more,
  });
  return { found: differences.map(({ rule, thing: name }) => `${rule}: ${name}`).sort(), under_way };
};
const drop = (kind: string, id: string) => (all: Clean) => {
  all.items = all.items.filter((one) => one.kind !== kind || one.id !== id);
};
const lose = (kind: string, id: string) => (all: Clean) => {
  all.things = all.things.filter((one) => one.kind !== kind || one.id !== id);
};
const add =
  (...items: InventoryItem[]) =>
  (all: Clean) =>
    void all.items.push(...items);
const plant =
  (...things: RegionThing[]) =>
  (all: Clean) =>
    void all.things.push(...things);
const turn = (kind: string, id: string, state: string) => (all: Clean) => {
  all.items.find((one) => one.kind === kind && one.id === id)!.state = state;
};

describe('the audit', () => {
  it('a clean system has no difference, and nothing under way', () => {
    expect(look()).toEqual({ found: [], under_way: [] });
  });

  it.each<[string, (all: Clean) => void, string[]]>([
    [
      'a machine that nobody wants',
      plant(thing('machine', 'q', 'vm:q', 'running')),
      ['not wanted: machine:q'],
    ],
    [
      'a machine of an order that failed',
      turn('vm', 'v', 'error'),
      ['not wanted: machine:v', 'not wanted: process:qemu 123'],
    ],
    ['a wanted machine that is not there', lose('machine', 'v'), ['not in the region: vm:v']],
    ['a network that nobody wants', plant(thing('network', 'q', 'vpc:q')), ['not wanted: network:q']],
    ['a wanted network that is not there', lose('network', 'n'), ['not in the region: vpc:n']],
    [
      'a floating IP that does not work',
      (all) => {
        lose('floating_ip', 'f')(all);
        lose('address', '192.0.2.1')(all);
      },
      ['not in the region: floating_ip:f'],
    ],
    [
      'a floating IP that works for nobody',
      plant(thing('floating_ip', 'z', 'vpc:n')),
      ['not wanted: floating_ip:z'],
    ],
    [
      'a process of a machine that is gone',
      plant(thing('process', 'qemu 9', 'vm:q')),
      ['not wanted: process:qemu 9'],
    ],
    [
      'a link that belongs to nothing',
      plant(thing('link', 'tap7', null)),
      ['nobody’s on the host: link:tap7'],
    ],
    [
      'a link of a port that is gone',
      plant(thing('link', doorOf('q'), 'vpc:n')),
      [`not wanted: link:${doorOf('q')}`],
    ],
    [
      'an address that nobody has',
      plant(thing('address', '192.0.2.9', 'vpc:n')),
      ['not wanted: address:192.0.2.9'],
    ],
    [
      'an address that is attached to nothing',
      plant(thing('address', '192.0.2.3', 'vpc:n')),
      ['not wanted: address:192.0.2.3'],
    ],
    ['a port without its owner', add(item('port', 'o', null, 'vpc:n', 'vm:q')), ['port without vm: port:o']],
    [
      'a port that its owner does not know',
      add(item('port', 'o', null, 'vpc:n', 'vm:v')),
      ['port nobody uses: port:o'],
    ],
    [
      'a port that its app does not know',
      add(item('port', 'o', null, 'vpc:n', 'app:a')),
      ['port nobody uses: port:o'],
    ],
    [
      'a port of an app that is gone',
      add(item('port', 'o', null, 'vpc:n', 'app:q')),
      ['port without app: port:o'],
    ],
    ['a port whose replica is gone', drop('replica', 'e'), ['app_port without replica: app_port:c']],
    ['a port whose run is over', drop('job_run', 'j'), ['app_port without job_run: app_port:d']],
    [
      'a replica without its port at networking',
      drop('port', 'c'),
      ['app without port: app:a', 'app_port without port: app_port:c', `not wanted: link:${doorOf('c')}`],
    ],
    ['a replica whose port nobody keeps', drop('app_port', 'c'), ['replica without app_port: replica:e']],
    ['a port that nobody gives back', turn('app_port', 'c', 'lost'), ['port nobody gives back: app_port:c']],
    [
      'an owner without its port',
      drop('port', 'p'),
      [
        'floating_ip without port: floating_ip:f',
        `not wanted: link:${doorOf('p')}`,
        'reserved_ip without port: reserved_ip:x',
        'vm without port: vm:v',
      ],
    ],
    [
      'a pool address held by nobody',
      add(item('pool_address', 'r/192.0.2.9', 'held', 'floating_ip:q')),
      ['pool_address without floating_ip: pool_address:r/192.0.2.9'],
    ],
    [
      'a floating IP whose address is free',
      drop('pool_address', 'r/192.0.2.3'),
      ['floating_ip without pool_address: floating_ip:z'],
    ],
    [
      'a floating IP without a span',
      (all) => {
        drop('span', 'u')(all);
        drop('billing_span', 'u')(all);
        all.items.find(({ id }) => id === 'z')!.refers = ['pool_address:r/192.0.2.3'];
      },
      ['floating IP without span: floating_ip:z'],
    ],
    [
      'a span without its floating IP',
      add(item('span', 'q', 'open', 'floating_ip:q'), item('billing_span', 'q', 'open', 'floating_ip:q')),
      ['billing_span without floating_ip: billing_span:q', 'span without floating_ip: span:q'],
    ],
    ['a span that nobody charges', drop('billing_span', 's'), ['span without charge: span:s']],
    [
      'a charge for what nobody has',
      add(item('billing_span', 'q', 'open', 'vm:q')),
      ['billing_span without vm: billing_span:q', 'charge without span: billing_span:q'],
    ],
    [
      'an ephemeral machine that nobody charges',
      (all) => {
        drop('vm_span', 'm')(all);
        drop('billing_span', 'm')(all);
      },
      ['vm without vm_span: vm:v'],
    ],
    ['a backup whose bytes are gone', drop('blob', 'h'), ['backup without blob: backup:b']],
    [
      'a backup without its machine',
      add(item('backup', 'q', 'ready', 'vm:q')),
      ['backup without vm: backup:q'],
    ],
    ['a gateway without its port', drop('port', 'g'), ['nat_gateway without port: nat_gateway:g']],
    [
      'money held beyond its time',
      add(item('reservation', 'q', 'overdue')),
      ['reservation left: reservation:q'],
    ],
    ['a machine that its region does not remove', turn('vm', 'v', 'remains'), ['late: vm:v']],
    [
      'a region that an installation does not know',
      add(item('vpc', 'q', 'error', 'region:q')),
      ['vpc without region: vpc:q'],
    ],
  ])('%s', (_what, change, found) => {
    expect(look(change).found).toEqual(found);
  });

  it('says in words, with ids, what is wrong', () => {
    const all = clean();
    plant(thing('machine', 'q', 'vm:q', 'running'))(all);
    const [difference] = compare({ ...all, regions: new Map([['r', all.things]]), ledger: [] }).differences;
    expect(difference!.text).toBe(
      'host of region r: machine q (running) is there for vm:q, which does not exist',
    );
  });

  it('a port that is given back is under way, and so is what leaves', () => {
    const { found, under_way } = look((all) => {
      turn('app_port', 'c', 'releasing')(all);
      drop('replica', 'e')(all);
      drop('port', 'c')(all);
      lose('link', doorOf('c'))(all);
      all.items.find(({ kind }) => kind === 'app')!.refers = ['region:r', 'port:d'];
    });
    expect(found).toEqual([]);
    expect(under_way.map(({ thing: name }) => name)).toEqual(['app_port:c']);
  });

  it('what is under way is named, and is no difference: neither itself nor what lies on the host for it', () => {
    const { found, under_way } = look((all) => {
      turn('vm', 'v', 'removing')(all);
      lose('machine', 'v')(all);
      add(item('reservation', 'q', 'held'), item('vpc', 'q', 'deleting', 'region:r'))(all);
      plant(thing('network', 'q', 'vpc:q'))(all);
    });
    expect(found).toEqual([]);
    expect(under_way.map(({ thing: name }) => name)).toEqual(['vm:v', 'reservation:q', 'vpc:q']);
  });

  it('a region that does not answer is a difference when something lies in it, and the ledger’s own are too', () => {
    expect(look(undefined, { regions: new Map([['r', null]]) }).found).toEqual(['region silent: region:r']);
    expect(
      look(undefined, {
        regions: new Map([
          ['r', clean().things],
          ['empty', null],
        ]),
      }).found,
    ).toEqual([]);
    const ledger = [{ account_id: 'a', subject: 'balance', recorded: '1', computed: '2' }];
    expect(look(undefined, { ledger }).found).toEqual(['ledger: account:a']);
  });
});
