import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type PortSpec, type ReplicaFacts, type VpcSpec } from '@nebo/contracts';
import { tool } from '../src/drivers/local/exec.js';
import { uplinkSettings } from '../src/drivers/local/uplink-mode.js';
import { doorOf } from '../src/drivers/local/vpc-rules.js';
import { LocalNetworkDriver } from '../src/drivers/local/vpcs.js';
import { homeTag } from '../src/system/runs.js';
import { type RegionAgent } from '../src/index.js';
import { eventually, localMissing, localNetworksMissing, stage, startAgent } from './agent-kit.js';
import { FakeControlPlane } from './fake-control-plane.js';
import { Hosts, type Port, portOf, specOf } from './network-kit.js';
import { plain, replicaOf, runOf } from './sources.js';

const missing = (await localMissing()) ?? (await localNetworksMissing());
const onHost = missing ? describe.skip : describe;

/** Answers on its port, says on port 8000 who it is and who asks, and goes wherever `/reach` sends it. */
const traveller = `
const net = require('node:net'), os = require('node:os'), http = require('node:http');
net.createServer((s) => { s.on('error', () => 0); s.end(process.env.NAME + ' ' + s.remoteAddress.replace('::ffff:', '')); }).listen(8000, '::');
http.createServer((q, a) => {
  const { searchParams: p, pathname } = new URL(q.url, 'http://x');
  if (pathname === '/addresses') return a.end(JSON.stringify(Object.entries(os.networkInterfaces()).flatMap(([name, all]) => all.filter((i) => i.family === 'IPv4').map((i) => [name, i.cidr, i.mac]))));
  if (pathname === '/env') return a.end(process.env.NEBO_PRIVATE_ADDRESS);
  if (pathname !== '/reach') return a.end('ok');
  const s = net.connect({ host: p.get('host'), port: Number(p.get('port') ?? 8000), timeout: 1500, ...(p.get('from') ? { localAddress: p.get('from') } : {}) });
  let said = '';
  s.on('data', (d) => { said += d; a.end(said); s.destroy(); });
  for (const e of ['error', 'timeout', 'end']) s.on(e, () => { if (!a.writableEnded) a.end('unreachable'); s.destroy(); });
}).listen(process.env.PORT, process.env.HOST);`;

onHost(`replicas in private networks${missing ? ` (SKIPPED: ${missing})` : ''}`, () => {
  const plane = new FakeControlPlane();
  const hosts = new Hosts();
  let home = '';
  let tag = '';
  let agent: RegionAgent;
  /** Another driver of the same home: puts machines beside the agent's replicas. */
  let beside: LocalNetworkDriver;
  let server: Server;
  let hostPort = 0;

  beforeAll(async () => {
    await plane.start();
    home = await mkdtemp(join(tmpdir(), 'nebo-agent-'));
    tag = homeTag(home);
    agent = await startAgent(plane, home, 'local', {}, null, 'local', true);
    beside = new LocalNetworkDriver({ tag, uplink: uplinkSettings({ NEBO_UPLINK: 'isolated' }) });
    server = createServer((socket) => socket.end('the host')).listen(0, '0.0.0.0');
    await once(server, 'listening');
    hostPort = (server.address() as AddressInfo).port;
  }, 60_000);
  afterAll(async () => {
    await agent.stop();
    await hosts.remove();
    await plane.stop();
    server.close();
    await rm(home, { recursive: true, force: true });
    expect((await readdir('/run/netns')).filter((name) => name.includes(tag))).toEqual([]);
  }, 60_000);

  const wantVpc = (id: string, generation: number, ...ports: Port[]) =>
    plane.want(id, generation, { kind: 'vpc', spec: specOf('10.77.0.0/24', ports) });
  const portSpec = (vpc: string, port: Port): PortSpec => ({
    ...{ vpc_id: vpc, port_id: port.id, mac: port.mac, address: port.address },
    ...{ prefix: 24, gateway: '10.77.0.1' },
  });
  const wanted = new Map<string, Awaited<ReturnType<typeof replicaOf>>>();
  const wantReplica = async (id: string, port: PortSpec) => {
    const of = await replicaOf(plane, id, traveller, { port, env: [plain('NAME', id)] });
    wanted.set(id, of);
    plane.want(id, 1, of);
  };
  const get = async (id: string, path: string) => {
    const { host, port } = plane.latest(id)!.facts as unknown as ReplicaFacts;
    return (await fetch(`http://${host}:${port}${path}`)).text();
  };
  const reach = (id: string, host: string, more = '') => get(id, `/reach?host=${host}${more}`);
  /** The namespace of the replica that is in a private network; others are kept ready for replicas to come. */
  const spaceOfReplica = async (): Promise<string> => {
    const names = (await readdir('/run/netns')).filter((name) => name.startsWith(`nebo-${tag}-`));
    const links = await Promise.all(names.map((name) => tool(['ip', '-n', name, '-br', 'link'])));
    return names.find((_name, index) => links[index]!.includes('eth1'))!;
  };
  const machine = async (vpc: string, port: Port) => {
    // What the agent has made since is known to whoever looks anew.
    await beside.start();
    try {
      const name = await hosts.join(beside, vpc, port);
      await hosts.listen(name);
      return name;
    } catch (error) {
      // A network that is just being made again may have no bridge yet: what was made until then would be in the next one's way.
      await beside.drop(vpc, port.id);
      throw error;
    }
  };
  const gone = async (...ids: string[]) => {
    for (const id of ids) plane.want(id, 2, wanted.get(id)!, true);
    await Promise.all(ids.map((id) => plane.see(id, 'gone')));
  };

  it('reaches the machines of its network and is reached by them; nothing else opens in either direction', async () => {
    const [one, two] = [randomUUID(), randomUUID()];
    const [mine, m] = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')] as const;
    const [same, stranger] = [portOf('10.77.0.5', '05'), portOf('10.77.0.7', '07')] as const;
    wantVpc(one, 1, mine, m);
    wantVpc(two, 1, same, stranger);
    await Promise.all([wantReplica('a', portSpec(one, mine)), wantReplica('b', portSpec(two, same))]);
    await Promise.all(['a', 'b'].map((id) => plane.see(id, 'ready')));
    const [inOne, inTwo] = [await machine(one, m), await machine(two, stranger)];

    // The kernel takes a moment to call a new link a running one.
    await eventually(async () => (await get('a', '/addresses')).includes('eth1'));
    expect(JSON.parse(await get('a', '/addresses'))).toContainEqual(['eth1', '10.77.0.5/24', mine.mac]);
    expect(await get('a', '/env')).toBe('10.77.0.5');
    await eventually(() =>
      plane.lines('replica-a').includes('nebo: its address in the private network 10.77.0.0/24 is 10.77.0.5'),
    );
    // The same address is another account's replica in the other network.
    expect(
      await Promise.all([
        reach('a', '10.77.0.6'),
        reach('b', '10.77.0.7'),
        hosts.connect(inOne, '10.77.0.5'),
        hosts.connect(inTwo, '10.77.0.5'),
      ]),
    ).toEqual([`${inOne} 10.77.0.5`, `${inTwo} 10.77.0.5`, 'a 10.77.0.6', 'b 10.77.0.7']);

    // The other network is not reached, nor is the host: by neither door, nor through the replica by its neighbours.
    const { host: link } = plane.latest('a')!.facts as unknown as ReplicaFacts;
    const hostEnd = link.replace(/\d+$/, (last) => String(Number(last) - 1));
    await tool(['ip', '-n', inOne, 'route', 'add', '100.96.0.0/12', 'via', '10.77.0.5']);
    expect(
      await Promise.all([
        reach('a', '10.77.0.7'),
        reach('a', hostEnd, `&port=${hostPort}`),
        reach('a', hostEnd, `&port=${hostPort}&from=10.77.0.5`),
        reach('a', '10.77.0.1', `&port=${hostPort}`),
        hosts.connect(inTwo, '10.77.0.6', 8000, undefined, 1_200),
        hosts.connect(inOne, hostEnd, hostPort, undefined, 1_200),
        hosts.connect(inOne, link, 8000, undefined, 1_200),
      ]),
    ).toEqual(Array(7).fill('unreachable'));
    // Neither does the host have a way to the private address, whoever else may answer there.
    const asked = fetch('http://10.77.0.5:8080', { signal: AbortSignal.timeout(1_500) });
    expect(await asked.then((answer) => answer.text()).catch(() => 'nobody')).not.toBe('ok');

    // Its port is taken away: it serves on, without the network.
    wantVpc(one, 2, m);
    await eventually(async () => (await reach('a', '10.77.0.6')) === 'unreachable');
    expect(await hosts.unreachable(inOne, '10.77.0.5')).toBe(true);
    expect(await get('a', '/')).toBe('ok');
    await gone('a', 'b');
    const doors = await tool(['ip', '-n', beside.namespaceOf(two), '-br', 'link']);
    expect(doors.includes(doorOf(same.id))).toBe(false);
  }, 90_000);

  it('who breaks its rules in the replica still cannot forge a MAC or an address, nor pass packets on', async () => {
    const vpc = randomUUID();
    const [mine, m, other] = [
      portOf('10.77.0.5', '05'),
      portOf('10.77.0.6', '06'),
      portOf('10.77.0.7', '07'),
    ] as const;
    wantVpc(vpc, 1, mine, m, other);
    await wantReplica('forger', portSpec(vpc, mine));
    await plane.see('forger', 'ready');
    const [heard, third] = [await machine(vpc, m), await machine(vpc, other)];
    const space = await spaceOfReplica();
    const inside = (...argv: string[]) => tool(['ip', 'netns', 'exec', space, ...argv]);
    await inside('nft', 'flush', 'ruleset');
    const ear = await hosts.hear(heard);
    await hosts.say(space, '10.77.0.6', '10.77.0.5');
    await eventually(() => ear.from().includes('10.77.0.5'));
    const before = ear.from().length;
    const forged = ['10.77.0.7', '10.77.0.1', '10.77.0.99'];
    for (const address of forged) await inside('ip', 'addr', 'add', `${address}/32`, 'dev', 'eth1');
    // The address of its own link to the host does not belong there either.
    const { host: link } = plane.latest('forger')!.facts as unknown as ReplicaFacts;
    await Promise.all([...forged, link].map((address) => hosts.say(space, '10.77.0.6', address)));
    for (const address of forged) await inside('ip', 'addr', 'del', `${address}/32`, 'dev', 'eth1');
    await inside('ip', 'link', 'set', 'eth1', 'address', '02:00:00:00:00:99');
    await hosts.say(space, '10.77.0.6', '10.77.0.5');
    await inside('ip', 'link', 'set', 'eth1', 'address', mine.mac);
    expect(ear.from().length).toBe(before);
    expect(await hosts.connect(third, '10.77.0.6')).toBe(`${heard} 10.77.0.7`);
    await gone('forger');
  }, 60_000);

  it('comes before its network and before its port there, and after one that a killed agent left', async () => {
    const vpc = randomUUID();
    const [mine, m] = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')] as const;
    await wantReplica('early', portSpec(vpc, mine));
    await new Promise((done) => setTimeout(done, 500));
    expect(plane.latest('early')?.state).toBe('starting');
    wantVpc(vpc, 1, m);
    await plane.see('early', 'ready');
    const inside = await machine(vpc, m);
    expect(await hosts.unreachable(inside, '10.77.0.5')).toBe(true);
    wantVpc(vpc, 2, mine, m);
    await eventually(async () => (await hosts.connect(inside, '10.77.0.5')) === 'early 10.77.0.6');

    await gone('early');
    const left = await hosts.space();
    await beside.plug(
      vpc,
      mine.id,
      { namespace: left, device: 'eth1', mac: mine.mac },
      new AbortController().signal,
    );
    await wantReplica('late', portSpec(vpc, mine));
    await plane.see('late', 'ready');
    await eventually(async () => (await hosts.connect(inside, '10.77.0.5')) === 'late 10.77.0.6');

    // The network is lost and made again, and so is the replica's interface.
    await tool(['ip', 'netns', 'del', beside.namespaceOf(vpc)]);
    const again = await eventually(async () => {
      await beside.start();
      return (await beside.list()).some(({ id, state }) => id === vpc && state === 'active') || null;
    }, 20_000);
    expect(again).toBe(true);
    const anew = await eventually(() => machine(vpc, m).catch(() => null), 20_000);
    await eventually(async () => (await hosts.connect(anew, '10.77.0.5')) === 'late 10.77.0.6', 20_000);

    // A new agent starts it anew, with the same address.
    await agent.stop();
    agent = await startAgent(plane, home, 'local', {}, null, 'local', true);
    await eventually(() => plane.observed.filter(({ id, state }) => id === 'late' && state === 'ready')[1]);
    const after = await eventually(() => machine(vpc, m).catch(() => null));
    await eventually(async () => (await hosts.connect(after, '10.77.0.5')) === 'late 10.77.0.6', 20_000);
    await gone('late');
  }, 120_000);

  it('a job run sits in the network of its app; a network that does not come is its reason', async () => {
    const vpc = randomUUID();
    const [mine, m] = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')] as const;
    wantVpc(vpc, 1, mine, m);
    await plane.see(vpc, 'active');
    const inside = await machine(vpc, m);
    const command = `node -e "require('node:net').connect(8000, '10.77.0.6').on('data', (d) => { console.log(String(d)); process.exit(); })"`;
    plane.want('job', 1, await runOf(plane, 'job', command, { port: portSpec(vpc, mine) }));
    await plane.see('job', 'success');
    expect(plane.lines('run-job')).toEqual([`${inside} 10.77.0.5`]);
    const bad = { ...portSpec(vpc, mine), address: '100.96.0.5', gateway: '100.96.0.1' };
    plane.want('bad', 1, await runOf(plane, 'bad', command, { port: bad }));
    expect((await plane.see('bad', 'error')).reason).toBe(
      'the port in its private network cannot be made: the subnet is not a private one',
    );
    await wantReplica('wrong', { ...portSpec(vpc, mine), mac: '02:00:00:00:00:05\nflush' });
    expect((await plane.see('wrong', 'failed')).reason).toContain('cannot be made');
    await gone('wrong');
  }, 60_000);
});

describe('where networks or replicas are simulated', () => {
  it('a replica that is to be in a network runs and says in its log that it has no interface', async () => {
    const on = await stage('simulated');
    try {
      const port: PortSpec = {
        ...{ vpc_id: randomUUID(), port_id: randomUUID(), mac: '02:00:00:00:00:05' },
        ...{ address: '10.77.0.5', prefix: 24, gateway: '10.77.0.1' },
      };
      const spec: VpcSpec = specOf('10.77.0.0/24', [
        { id: port.port_id, mac: port.mac, address: port.address },
      ]);
      on.plane.want(port.vpc_id, 1, { kind: 'vpc', spec });
      on.plane.want('a', 1, await replicaOf(on.plane, 'a', traveller, { port }));
      await on.plane.see('a', 'ready');
      await eventually(() => on.plane.lines('replica-a').some((line) => line.includes('no interface')));
    } finally {
      await on.end();
    }
  }, 30_000);
});
