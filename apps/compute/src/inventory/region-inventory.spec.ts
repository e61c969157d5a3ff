import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, FakeAgent } from '../../test/harness.js';

describe('the inventory of a region', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let region: string;
  beforeAll(async () => {
    bench = await Bench.start();
    region = (await bench.internal('POST', 'operator/regions', { name: 'looked-at' })).body.id as string;
    agent = new FakeAgent(bench, { kind: 'agent', region_id: region, epoch: 1 });
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const ask = async () =>
    (await bench.internal('POST', `operator/regions/${region}/inventory`)).body.number as number;
  const read = (number: number, after = '') =>
    bench.internal('GET', `operator/regions/${region}/inventory?number=${number}&after=${after}`);
  const thing = (id: string) => ({ kind: 'machine', id, of: `vm:${id}`, state: 'running' });
  const tell = (number: number, ids: string[], last = true) =>
    agent.call('POST', 'inventory', { number, things: ids.map(thing), last });

  it('nobody asks: the agent hears no number; 404 for a region that is none', async () => {
    expect((await agent.call('GET', 'inventory')).body).toEqual({ number: null });
    const path = `operator/regions/${randomUUID()}/inventory`;
    expect((await bench.internal('POST', path)).status).toBe(404);
  });

  it('a question ends the agent’s wait; parts count when the last one has come', async () => {
    const waiting = agent.call('GET', 'inventory?wait=20');
    const number = await ask();
    expect((await waiting).body).toEqual({ number });
    expect((await read(number)).body).toEqual({ answered: false, things: [], next: null });
    const [one, two] = [randomUUID(), randomUUID()].sort() as [string, string];
    expect((await tell(number, [two], false)).status).toBe(200);
    expect((await read(number)).body.answered).toBe(false);
    await tell(number, [two, one]);
    expect((await read(number)).body).toEqual({
      answered: true,
      things: [thing(one), thing(two)],
      next: null,
    });
    expect((await read(number, `machine:${one}`)).body.things).toEqual([thing(two)]);
    expect((await agent.call('GET', 'inventory')).body).toEqual({ number: null });
  });

  it('an answer to an older question is dropped, and replaces nothing', async () => {
    const [old, now] = [await ask(), await ask()];
    await tell(old, [randomUUID()]);
    expect((await read(old)).body.answered).toBe(false);
    await tell(now, []);
    expect((await read(now)).body).toEqual({ answered: true, things: [], next: null });
  });

  it('409 for an agent that another one has replaced, 401 for others, 422 for what is none', async () => {
    const number = await ask();
    const newer = new FakeAgent(bench, { kind: 'agent', region_id: region, epoch: 2 });
    expect((await newer.call('GET', 'inventory')).body).toEqual({ number });
    expect((await tell(number, [])).status).toBe(409);
    expect((await agent.call('GET', 'inventory')).status).toBe(409);
    const call = bench.nebo.request('compute', { path: '/agent/v1/compute/inventory', as: bench.key });
    expect((await call).status).toBe(401);
    for (const body of [
      {},
      { number: 0 },
      { number, things: [{ kind: 'X', id: 'a' }] },
      { number, things: 1 },
    ])
      expect((await newer.call('POST', 'inventory', body)).status).toBe(422);
    expect((await bench.internal('GET', `operator/regions/${region}/inventory?number=x`)).status).toBe(422);
  });
});
