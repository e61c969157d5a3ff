import { randomBytes, randomUUID } from 'node:crypto';
import type { TestAnswer } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';
import { Blobs } from '../blobs/blobs.js';

/** Numbers from a seed, so that a failure can be made again: `NEBO_SEED`. */
function dice(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

describe('backups and restores at once', () => {
  const seed = Number(process.env['NEBO_SEED'] ?? Date.now() % 1_000_000);
  let bench: Bench;
  beforeAll(async () => {
    bench = await Bench.start();
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  /** Does what is wanted as a region would, now and then badly. */
  async function region(
    agent: FakeAgent,
    roll: (below: number) => number,
    over: () => boolean,
  ): Promise<void> {
    const done = new Map<string, number>();
    while (!over()) {
      await agent.poll();
      for (const item of [...agent.backups.values()]) {
        if (done.get(item.id) === item.generation) continue;
        done.set(item.id, item.generation);
        if (item.gone) await agent.observeBackup(item, 'gone');
        else if (roll(4) === 0) await agent.observeBackup(item, 'failed', { reason: 'bad luck' });
        else await agent.back(item.id, randomBytes(20 + roll(2)));
      }
      for (const item of [...agent.wanted.values()]) {
        if (done.get(item.id) === item.generation) continue;
        done.set(item.id, item.generation);
        const restored = item.spec.restore?.number ?? 1_000;
        const state = item.gone ? 'gone' : item.spec.power;
        await agent.observe(item, state, { facts: { restored } });
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  it(`150 random acts by 6 hands on 3 machines: never a 5xx, never a slot too many, nothing is left (seed ${seed})`, async () => {
    const roll = dice(seed);
    const agent = new FakeAgent(bench);
    let over = false;
    const working = region(agent, roll, () => over);
    const vms: string[] = [];
    for (let n = 0; n < 3; n += 1) vms.push((await bench.vm({ backup_count: 2 })).id);
    for (const id of vms) await bench.reach(id, 'active');
    const seen = new Map<number, number>();
    const broken: string[] = [];
    const note = (answer: TestAnswer): TestAnswer => {
      seen.set(answer.status, (seen.get(answer.status) ?? 0) + 1);
      if (answer.status >= 500) broken.push(answer.text);
      return answer;
    };
    const act = async (): Promise<void> => {
      const vm = vms[roll(3)]!;
      const { data } = (await bench.api('GET', `vms/${vm}/backups`)).body as { data: { id: string }[] };
      const path = `vms/${vm}/backups/${data[roll(Math.max(1, data.length))]?.id ?? randomUUID()}`;
      switch (roll(7)) {
        case 0:
          note(await bench.api('DELETE', path));
          break;
        case 1:
          note(await bench.api('POST', `${path}/restore`, { target: 'vm' }));
          break;
        case 2: {
          const order = { target: 'new', vm: { name: randomUUID() } };
          const made = note(await bench.api('POST', `${path}/restore`, order));
          if (made.status === 202) note(await bench.api('DELETE', `vms/${made.body.id}`));
          break;
        }
        case 3:
          note(await bench.api('POST', `vms/${vm}/${['stop', 'start'][roll(2)]!}`));
          break;
        default:
          note(await bench.api('POST', `vms/${vm}/backups`, { name: 'b' }));
      }
      const [worst] = await bench.sql<{ taken: number; going: number }>(
        `select coalesce(max(taken), 0)::int as taken, coalesce(max(going), 0)::int as going from (
           select count(*) filter (where deleted_at is null and phase in ('pending', 'creating', 'ready')) as taken,
             count(*) filter (where phase in ('pending', 'creating')) as going
           from vm_backup group by vm_id) b`,
      );
      expect(worst!.taken).toBeLessThanOrEqual(2);
      expect(worst!.going).toBeLessThanOrEqual(1);
    };
    await Promise.all(
      Array.from({ length: 6 }, async () => {
        for (let n = 0; n < 25; n += 1) await act();
      }),
    );
    expect(broken).toEqual([]);
    // The walk has done something: made, refused, restored.
    for (const status of [201, 202, 409]) expect(seen.get(status) ?? 0).toBeGreaterThan(0);

    // Each machine comes to rest, whatever was asked of it.
    for (const id of vms)
      await eventually(`${id} at rest`, async () =>
        ['active', 'stopped'].includes((await bench.api('GET', `vms/${id}`)).body.status as string),
      );
    for (const id of vms) await bench.api('DELETE', `vms/${id}`);
    await eventually('nothing', async () => (await bench.sql('select 1 from vm')).length === 0);
    over = true;
    await working;
    expect(await bench.sql('select 1 from vm_backup')).toEqual([]);
    const alive = "select kind, state from lifecycle where ended_at is null and kind in ('vm', 'backup')";
    await eventually('all lives ended', async () => (await bench.sql(alive)).length === 0);
    await bench.sql("update blob set stored_at = now() - interval '25 hours'");
    await bench.nebo.services.get('compute')!.app.get(Blobs).collect();
    const left = [];
    for await (const blob of bench.nebo.runtime.blobsOf('compute').list()) left.push(blob);
    expect(left).toEqual([]);
    expect(await bench.sql('select 1 from blob')).toEqual([]);
  }, 120_000);
});
