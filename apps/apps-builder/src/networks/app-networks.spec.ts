import { randomUUID } from 'node:crypto';
import type { InventoryItem, ReplicaSpec, RunSpec } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { archive, Bench, eventually, pause, region } from '../../test/harness.js';

type Item = Awaited<ReturnType<FakeAgent['replicas']>>[number];

describe('apps in private networks', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let edge: FakeEdge;

  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
    edge = new FakeEdge(bench);
    edge.run();
  });
  afterAll(async () => {
    await edge?.stop();
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const net = (room?: number) => bench.networking.vpc(bench.account, region, room);
  const portsIn = (vpc: string) => bench.networking.in(vpc).length;
  const setNet = async (app: string, vpc_id: string | null) =>
    expect((await bench.api('PATCH', `apps/${app}`, { vpc_id })).status).toBe(200);
  const deploy = async (app: string) => {
    const answer = await bench.upload(`apps/${app}/deployments`, archive({ main: randomUUID() }));
    return answer.body.id as string;
  };
  const state = (app: string, build: string, word: string) =>
    eventually(`deploy_state ${word}`, async () => {
      const { body } = await bench.api('GET', `apps/${app}/builds/${build}`);
      return body.deploy_state === word && (body as { boot_error: string | null });
    });
  /** Replicas that the region is to have of an app, as it knows them now. */
  const wanted = async (app: string): Promise<Item[]> => {
    await agent.poll();
    return [...agent.wanted.values()].filter(
      (item) => item.kind === 'replica' && item.spec.app_id === app && !item.gone,
    );
  };
  const netOf = (item: Item) => (item.spec as ReplicaSpec).port?.vpc_id ?? null;
  /** The replicas of an app in a network, once there are so many; `not` counts as known already. */
  const inNet = (app: string, vpc: string | null, count: number, not: readonly Item[] = []) =>
    eventually(`${count} more replicas in ${vpc}`, async () => {
      const known = new Set(not.map(({ id }) => id));
      const found = (await wanted(app)).filter((item) => netOf(item) === vpc && !known.has(item.id));
      return found.length === count && found;
    });
  const served = (app: string) =>
    edge
      .of(app)
      ?.target.replicas?.map(({ id }) => id)
      .sort() ?? [];
  const serves = (app: string, ids: readonly string[]) =>
    eventually(`served by ${ids.length}`, async () => served(app).join() === [...ids].sort().join());
  const idsOf = (items: readonly Item[]) => items.map(({ id }) => id);
  let port = 6_000;
  /** An app with a live server build. */
  const live = async (more: Record<string, unknown>) => {
    const app = await bench.app({ replica_count: 1, ...more });
    const build = await deploy(app.id);
    await agent.build(build, 'server');
    const replicas = await agent.replicas(build, Math.max(1, app.replica_count));
    for (const item of replicas) await agent.ready(item, (port += 1));
    await state(app.id, build, 'live');
    return { app: app.id as string, build, replicas };
  };
  const emptied = (vpc: string) =>
    eventually('every port is given back', async () => {
      await agent.removeGone();
      return portsIn(vpc) === 0;
    });

  it('each replica claims a port; the region hears of it with the port, and of none that has none yet', async () => {
    const vpc = net();
    const app = await bench.app({ replica_count: 2, vpc_id: vpc });
    const build = await deploy(app.id);
    bench.networking.away = true;
    await agent.build(build, 'server');
    await eventually(
      'ports are wanted',
      async () => (await bench.sql('select 1 from app_port')).length === 2,
    );
    await pause(300);
    expect(await wanted(app.id)).toEqual([]);
    bench.networking.away = false;
    const replicas = await agent.replicas(build, 2);
    const ports = bench.networking.in(vpc);
    expect(ports).toMatchObject(Array(2).fill({ kind: 'replica', owner: `app:${app.id}` }));
    const specs = replicas.map(({ spec }) => (spec as ReplicaSpec).port!);
    expect(specs.sort((a, b) => (a.port_id < b.port_id ? -1 : 1))).toEqual(
      ports
        .map(({ id, mac, address, prefix, gateway }) => ({
          vpc_id: vpc,
          port_id: id,
          mac,
          address,
          prefix,
          gateway,
        }))
        .sort((a, b) => (a.port_id < b.port_id ? -1 : 1)),
    );
    for (const item of replicas) await agent.ready(item);
    await state(app.id, build, 'live');

    // Scaled down: the address is somebody's until the region says that the replica is gone.
    await bench.api('PATCH', `apps/${app.id}`, { replica_count: 1 });
    await eventually('one shall go', async () => (await wanted(app.id)).length === 1);
    await pause(200);
    expect(portsIn(vpc)).toBe(2);
    await eventually('it is gone', async () => (await agent.removeGone()).length === 1);
    await eventually('its port is given back', async () => portsIn(vpc) === 1);
    await bench.api('DELETE', `apps/${app.id}`);
    await emptied(vpc);
    expect(await bench.sql('select 1 from app_port')).toEqual([]);
  });

  it('a claim and a release whose answers are lost are made again under the same id: one port, given back once', async () => {
    const vpc = net();
    const app = await bench.app({ replica_count: 1, vpc_id: vpc });
    const build = await deploy(app.id);
    bench.networking.heard.length = 0;
    bench.networking.loseAnswers = 2;
    await agent.build(build, 'server');
    const [replica] = await agent.replicas(build, 1);
    expect(portsIn(vpc)).toBe(1);
    const claims = bench.networking.heard.filter(({ what }) => what === 'claim');
    expect(claims.length).toBe(3);
    expect(new Set(claims.map(({ id }) => id))).toEqual(
      new Set([(replica!.spec as ReplicaSpec).port!.port_id]),
    );
    await agent.ready(replica!);
    await state(app.id, build, 'live');
    bench.networking.loseAnswers = 1;
    await bench.api('DELETE', `apps/${app.id}`);
    await emptied(vpc);
    await eventually(
      'the release is repeated',
      async () => (await bench.sql('select 1 from app_port')).length === 0,
    );
    const releases = bench.networking.heard.filter(({ what }) => what === 'release');
    expect(new Set(releases.map(({ id }) => id)).size).toBe(1);
  });

  it('rolling: one by one, never fewer than wanted in the routes, the old network empty at the end', async () => {
    const [from, to] = [net(), net()];
    const { app, build, replicas } = await live({ replica_count: 3, vpc_id: from });
    await serves(app, idsOf(replicas));
    let least = 3;
    const watch = setInterval(() => (least = Math.min(least, served(app).length)), 5);
    await setNet(app, to);
    const moved: Item[] = [];
    for (let step = 1; step <= 3; step += 1) {
      const [next] = await inNet(app, to, 1, moved);
      await pause(60);
      // One more than wanted at most, and the others in the old network still.
      expect(served(app).length).toBe(3);
      expect((await inNet(app, to, 1, moved)).length).toBe(1);
      moved.push(next!);
      await agent.ready(next!, (port += 1));
      await eventually('one of the old network goes', async () => {
        await agent.removeGone();
        return (await wanted(app)).filter((item) => netOf(item) === from).length === 3 - step;
      });
    }
    await serves(app, idsOf(moved));
    clearInterval(watch);
    expect(least).toBe(3);
    await emptied(from);
    expect(portsIn(to)).toBe(3);
    expect((await bench.api('GET', `apps/${app}/builds/${build}`)).body.deploy_state).toBe('live');

    // Out of every network again.
    await bench.api('PATCH', `apps/${app}`, { replica_count: 1, vpc_id: null });
    const [last] = await inNet(app, null, 1);
    expect((last!.spec as ReplicaSpec).port).toBeNull();
    await agent.ready(last!, (port += 1));
    await serves(app, [last!.id]);
    await emptied(to);
  });

  it('recreate: nothing starts in the new network before the region has nothing left in the old one', async () => {
    const [from, to] = [net(), net()];
    const { app, replicas } = await live({ replica_count: 2, vpc_id: from, deploy_strategy: 'recreate' });
    await setNet(app, to);
    await eventually('the old ones shall go', async () => (await wanted(app)).length === 0);
    await pause(300);
    expect([await wanted(app), portsIn(from), portsIn(to)]).toEqual([[], 2, 0]);
    expect(edge.of(app)!.target.kind).toBe('none');
    expect((await agent.removeGone()).sort()).toEqual(idsOf(replicas).sort());
    const moved = await inNet(app, to, 2);
    for (const item of moved) await agent.ready(item, (port += 1));
    await serves(app, idsOf(moved));
    await eventually('the old ports are given back', async () => portsIn(from) === 0);
  });

  it('on demand: the new one proves itself in its network before the old one goes', async () => {
    const [from, to] = [net(), net()];
    const app = await bench.app({ replica_count: 0, vpc_id: from });
    const build = await deploy(app.id);
    await agent.build(build, 'server');
    const [old] = await agent.replicas(build, 1);
    await agent.onDemand(old!, 'ready');
    await state(app.id, build, 'live');
    await agent.onDemand(old!, 'sleeping');
    const wake = () => edge.of(app.id)?.target.wake?.id;
    await eventually('the old one is woken', async () => wake() === old!.id);
    await setNet(app.id, to);
    const [next] = await inNet(app.id, to, 1);
    expect(wake()).toBe(old!.id);
    await agent.onDemand(next!, 'ready');
    await eventually('the new one is woken', async () => wake() === next!.id);
    await emptied(from);
  });

  it('a full subnet is a reason while the old ones serve, and no more once there is room', async () => {
    const [from, small] = [net(), net(1)];
    const { app, build } = await live({ replica_count: 2, vpc_id: from });
    await setNet(app, small);
    const [first] = await inNet(app, small, 1);
    await agent.ready(first!, (port += 1));
    const { boot_error } = await state(app, build, 'stale_serving');
    expect(boot_error).toContain('no free address left');
    expect(served(app).length).toBe(2);
    bench.networking.vpcs.get(small)!.room = 2;
    const [second] = await inNet(app, small, 1, [first!]);
    await agent.ready(second!, (port += 1));
    expect((await state(app, build, 'live')).boot_error).toBeNull();
    await emptied(from);
    await bench.api('DELETE', `apps/${app}`);
    await emptied(small);
  }, 30_000);

  it('a deploy into a network that is full, or is not there any more, fails with the reason; nothing stays behind', async () => {
    const [full, lost] = [net(0), net()];
    const made = await Promise.all([full, lost].map((vpc_id) => bench.app({ replica_count: 2, vpc_id })));
    bench.networking.vpcs.delete(lost);
    const words = ['no free address left', 'does not exist any more'];
    for (const [index, app] of made.entries()) {
      const build = await deploy(app.id);
      await agent.build(build, 'server');
      expect((await state(app.id, build, 'never_booted')).boot_error).toContain(words[index]);
      await eventually('nothing is left', async () => {
        await agent.removeGone();
        const left = await bench.sql('select 1 from app_port where app_id = $1', [app.id]);
        return left.length === 0;
      });
    }
  });

  it('one that does not come up in the new network leaves the old ones serving; set back, all is live again', async () => {
    const [from, to] = [net(), net()];
    const { app, build, replicas } = await live({ vpc_id: from });
    await setNet(app, to);
    const [bad] = await inNet(app, to, 1);
    await agent.observe(bad!, 'failed', { reason: 'exited with code 1: no database' });
    expect((await state(app, build, 'stale_serving')).boot_error).toContain('no database');
    expect(served(app)).toEqual(idsOf(replicas));
    await setNet(app, from);
    expect((await state(app, build, 'live')).boot_error).toBeNull();
    expect(idsOf(await inNet(app, from, 1))).toEqual(idsOf(replicas));
    await emptied(to);
    expect(portsIn(from)).toBe(1);
  });

  it('a deploy that fails leaves the last good revision in the app’s present network', async () => {
    const [from, to] = [net(), net()];
    const { app, build } = await live({ vpc_id: from });
    const next = await deploy(app);
    await agent.build(next, 'server');
    const [bad] = await agent.replicas(next, 1);
    // While it starts, the app is to move: it shall start where the app is now.
    await setNet(app, to);
    const again = await eventually('it starts in the new network', async () =>
      (await wanted(app)).find((item) => (item.spec as ReplicaSpec).build_id === next && netOf(item) === to),
    );
    expect(again.id).not.toBe(bad!.id);
    await agent.observe(again, 'failed', { reason: 'exited with code 2' });
    expect((await state(app, next, 'never_booted')).boot_error).toBe('exited with code 2');
    const good = await eventually('the good one moves', async () =>
      (await wanted(app)).find((item) => (item.spec as ReplicaSpec).build_id === build && netOf(item) === to),
    );
    await agent.ready(good, (port += 1));
    await serves(app, [good.id]);
    await emptied(from);
    // The failed one holds its address in the new network too until the region says that it is gone.
    await eventually('only the good one has a port', async () => {
      await agent.removeGone();
      return portsIn(to) === 1;
    });
  });

  it('a static site keeps the id and needs no port', async () => {
    const vpc = net();
    const app = await bench.app({ vpc_id: vpc });
    const build = await deploy(app.id);
    await agent.build(build, 'static');
    await state(app.id, build, 'live');
    expect((await bench.api('GET', `apps/${app.id}`)).body.vpc_id).toBe(vpc);
    expect(portsIn(vpc)).toBe(0);
  });

  it('a job run has a port of its own until the region has ended it; without an address it is an error with the reason', async () => {
    const vpc = net();
    const { app } = await live({ vpc_id: vpc });
    const job = (await bench.api('POST', `apps/${app}/jobs`, { name: 'j', command: 'true' })).body;
    const begin = async () => (await bench.api('POST', `apps/${app}/jobs/${job.id}/run`)).body.id as string;
    const ended = (id: string, status: string) =>
      eventually(`the run is ${status}`, async () => {
        const { body } = await bench.api('GET', `apps/${app}/job-runs/${id}`);
        return body.status === status && (body as { error: string | null });
      });
    const first = await begin();
    const item = await agent.until('the run is wanted', ({ id }) => id === first);
    const { port: given } = item.spec as RunSpec;
    expect(bench.networking.ports.get(given!.port_id)).toMatchObject({ owner: `app:${app}`, vpc_id: vpc });
    await agent.observe(item, 'running');
    await pause(200);
    expect(portsIn(vpc)).toBe(2);
    await agent.observe(item, 'success', { facts: { exit_code: 0, duration_ms: 5 } });
    await ended(first, 'success');
    await eventually('its port is given back', async () => portsIn(vpc) === 1);

    // Called off while the region has it: the port waits for the region's word, also of an agent that knows nothing of it.
    const second = await begin();
    const running = await agent.until('the run is wanted', ({ id }) => id === second);
    await agent.observe(running, 'running');
    await ended(second, 'running');
    await bench.sql("update job_run set started_at = now() - interval '1 day' where id = $1", [second]);
    await bench.sql(
      "update lifecycle set wakes = wakes + 1, run_at = now() where kind = 'job_run' and id = $1",
      [second],
    );
    await ended(second, 'error');
    agent.cursor = null;
    const off = await agent.until('it is to go', ({ id, gone }) => id === second && gone);
    expect(portsIn(vpc)).toBe(2);
    await agent.observe(off, 'cancelled');
    await eventually('its port is given back', async () => portsIn(vpc) === 1);

    bench.networking.vpcs.get(vpc)!.room = 1;
    expect((await ended(await begin(), 'error')).error).toContain('no free address left');
  }, 30_000);

  it('the inventory names each port with who sits on it', async () => {
    const vpc = net();
    const { app, replicas } = await live({ vpc_id: vpc });
    const { items } = (await bench.internal('GET', 'inventory')).body as { items: InventoryItem[] };
    const of = (kind: string, id: string) => items.find((item) => item.kind === kind && item.id === id);
    const { port_id } = (replicas[0]!.spec as ReplicaSpec).port!;
    expect(of('app', app)).toMatchObject({ state: 'there', refers: [`region:${region}`, `port:${port_id}`] });
    expect(of('app_port', port_id)).toMatchObject({
      state: 'held',
      refers: [`app:${app}`, `replica:${replicas[0]!.id}`, `vpc:${vpc}`, `port:${port_id}`],
    });
    expect(of('replica', replicas[0]!.id)).toMatchObject({
      state: 'wanted',
      refers: [`app:${app}`, `app_port:${port_id}`],
    });
  });
});
