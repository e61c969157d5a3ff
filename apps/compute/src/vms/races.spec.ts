import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';

describe('machines that are changed from all sides', () => {
  let bench: Bench;
  let agent: FakeAgent;
  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  afterEach(async () => {
    Object.assign(bench.billing, { captureAway: false });
    Object.assign(bench.networking, { away: false });
    await roomFor(null);
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const roomFor = (machines: number | null) =>
    bench.internal('POST', `agents/${bench.region}/take-over`, {
      capacity: machines === null ? null : { vcpu: 1_000, memory_mb: 1_024 * machines, disk_gb: 100_000 },
    });
  const phase = async (id: string) =>
    (await bench.sql<{ phase: string }>('select phase from vm where id = $1', [id]))[0]?.phase;
  const reaches = (id: string, ...wanted: string[]) =>
    eventually(`${id} ${wanted.join()}`, async () => wanted.includes((await phase(id)) ?? 'none'));
  /** The region removes what it shall. */
  const obey = async () => {
    await agent.poll();
    for (const item of agent.wanted.values()) {
      if (!item.gone) continue;
      await agent.observe(item, 'gone');
      agent.wanted.delete(item.id);
    }
  };
  const nothingLeft = async (id: string) => {
    await eventually(`nothing of ${id}`, async () => {
      await obey();
      return (await bench.remains(id)).rows === 0;
    });
    expect((await bench.remains(id)).ports).toBe(0);
  };
  const inOrder = async () => {
    // The queue goes on meanwhile: one moment for both sides.
    const [row] = await bench.sql<{ sums: object; used: object }>(
      `select (select json_build_object('vcpu', coalesce(sum(vcpu), 0), 'memory_mb', coalesce(sum(memory_mb), 0),
           'disk_gb', coalesce(sum(disk_gb), 0)) from vm where placed) as sums,
         (select json_build_object('vcpu', vcpu, 'memory_mb', memory_mb, 'disk_gb', disk_gb)
           from region_use where region_id = $1) as used`,
      [bench.region],
    );
    expect(row!.used).toEqual(row!.sums);
  };

  type Made = (more?: Record<string, unknown>) => Promise<string>;
  const order: Made = async (more) => (await bench.vm(more)).id as string;
  const states: [string, Made][] = [
    [
      'just ordered, billing away',
      (more) => {
        bench.billing.captureAway = true;
        return order(more);
      },
    ],
    [
      'waiting for room',
      async (more) => {
        await roomFor(0);
        const id = await order(more);
        await reaches(id, 'queued');
        return id;
      },
    ],
    [
      'waiting for its network',
      async (more) => {
        bench.networking.away = true;
        const id = await order(more);
        await reaches(id, 'attaching');
        return id;
      },
    ],
    [
      'being made',
      async (more) => {
        const id = await order(more);
        await agent.observe(await agent.see(id), 'creating');
        return id;
      },
    ],
    ['active', async (more) => (await agent.run(await order(more))).id as string],
    [
      'stopping',
      async (more) => {
        const { id } = await agent.run(await order(more));
        await bench.api('POST', `vms/${id}/stop`);
        return id as string;
      },
    ],
    [
      'being made larger',
      async (more) => {
        const { id } = await agent.run(await order(more));
        await bench.api('PATCH', `vms/${id}`, { disk_size_gb: 20 });
        return id as string;
      },
    ],
    [
      'one that could not be made',
      async (more) => {
        const id = await order(more);
        await agent.observe(await agent.see(id), 'failed', { reason: 'no such image' });
        await reaches(id, 'error');
        return id;
      },
    ],
  ];

  it.each(states)(
    '%s: everything at once is answered, never with a 5xx, and nothing is left',
    async (_, make) => {
      const id = await make();
      const path = `vms/${id}`;
      const answers = await Promise.all([
        bench.api('POST', `${path}/stop`),
        bench.api('PATCH', path, { name: `n ${id}` }),
        bench.api('DELETE', path),
        bench.api('POST', `${path}/start`, { renew: true }),
        bench.api('PATCH', path, { disk_size_gb: 30 }),
        bench.api('DELETE', path),
        bench.api('POST', `${path}/restart`),
        bench.api('POST', `${path}/renewal-quote`),
        bench.api('GET', path),
      ]);
      for (const { status, text } of answers)
        expect([[200, 202, 404, 409].includes(status), status < 500 ? '' : text]).toEqual([true, '']);
      const ends = [answers[2]!, answers[5]!].filter(({ status }) => status === 202);
      expect(ends.length).toBeGreaterThan(0);
      for (const { body } of ends) expect(['deleted', 'deleting']).toContain(body.status);
      bench.billing.captureAway = false;
      bench.networking.away = false;
      await nothingLeft(id);
      await eventually('nothing held', () => Promise.resolve(bench.billing.held() === 0n));
      await inOrder();
    },
  );

  it('forty orders and deletions through a region with room for six: never a 5xx, all money back, no place lost', async () => {
    await roomFor(6);
    const ids: string[] = [];
    const answers: number[] = [];
    await Promise.all(
      Array.from({ length: 8 }, async (_, lane) => {
        for (let n = 0; n < 5; n += 1) {
          const made = await bench.create(lane % 4 === 3 ? { ephemeral: true } : {});
          answers.push(made.status);
          if (made.status !== 201) continue;
          ids.push(made.body.id);
          // An earlier one, of any lane and in whatever state it is.
          const other = ids[(lane * 7 + n * 3) % ids.length]!;
          answers.push((await bench.api('DELETE', `vms/${other}`)).status);
          if (lane === 0) await obey();
        }
      }),
    );
    expect(answers.filter((status) => ![201, 202, 404, 503].includes(status))).toEqual([]);
    await inOrder();
    for (const id of ids) {
      const { status } = await bench.api('DELETE', `vms/${id}`);
      expect([202, 404]).toContain(status);
    }
    for (const id of ids) await nothingLeft(id);
    for (const id of ids) expect((await bench.remains(id)).charged).toBe(0n);
    await inOrder();
    expect((await bench.internal('GET', 'operator/regions')).body[0]).toMatchObject({
      machines: 0,
      queued: 0,
    });
  });
});
