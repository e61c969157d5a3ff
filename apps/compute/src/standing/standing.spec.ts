import { randomUUID } from 'node:crypto';
import { type AccountStanding, accountSuspended, type AuditEvent, computeEvents } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';
import { StandingService } from './standing.service.js';

describe('machines of accounts without money', () => {
  let bench: Bench;
  let agent: FakeAgent;
  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  beforeEach(() => {
    bench.billing.standing = [];
  });
  afterEach(() => {
    bench.billing.away = false;
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const compare = () =>
    bench.nebo.services.get('compute')!.app.get<StandingService>(StandingService).compare();
  const says = (state: AccountStanding['state'], account_id = bench.account) =>
    bench.billing.standing.push({ account_id, state, since: new Date().toISOString() });
  const read = async (id: string) => (await bench.api('GET', `vms/${id}`)).body;
  const active = async (more: Record<string, unknown> = {}): Promise<string> =>
    (await agent.run((await bench.vm(more)).id)).id;
  const power = (id: string, verb: string) => bench.api('POST', `vms/${id}/${verb}`);
  const stopped = async (id: string, generation: number) => {
    const item = await agent.see(id, generation);
    expect(item.spec.power).toBe('stopped');
    await agent.observe(item, 'stopped');
    return bench.reach(id, 'stopped');
  };

  it('suspended: stopped with a reason and kept, starts are 402; in order again: those that ran are started', async () => {
    const [ran, idle] = [await active(), await active()];
    await power(idle, 'stop');
    await stopped(idle, 2);
    says('suspended');
    await compare();
    expect((await stopped(ran, 2)).status_reason).toMatch(/balance is used up.*top-up starts it/);
    for (const id of [ran, idle])
      for (const verb of ['start', 'restart'])
        expect(await power(id, verb)).toMatchObject({
          status: 402,
          body: { error: { code: 'account_suspended' } },
        });
    expect((await power(ran, 'stop')).status).toBe(200);
    expect((await bench.remains(ran)).ports).toBe(1);
    // A second look changes nothing.
    const before = await bench.sql('select id, generation from vm order by id');
    await compare();
    expect(await bench.sql('select id, generation from vm order by id')).toEqual(before);

    bench.billing.standing = [];
    await compare();
    // Its owner has said stop meanwhile.
    expect((await read(ran)).status).toBe('stopped');
    expect((await power(ran, 'start')).body.status).toBe('starting');
    expect((await read(idle)).status).toBe('stopped');

    const other = await active();
    says('suspended');
    await compare();
    await stopped(other, 2);
    bench.billing.standing = [];
    await compare();
    expect(await read(other)).toMatchObject({ status: 'starting' });
    const item = await agent.see(other, 3);
    expect(item.spec.power).toBe('running');
    await agent.observe(item, 'running');
    expect((await bench.reach(other, 'active')).status_reason).toBeNull();
  });

  it('a machine that is just being made is stopped once it is made; other accounts are left alone', async () => {
    const vm = await bench.vm();
    const strange = await bench.api('POST', `projects/${randomUUID()}/vms`, bench.order(), bench.stranger);
    await agent.observe(await agent.see(strange.body.id), 'running');
    says('suspended');
    await compare();
    expect((await agent.see(vm.id)).spec.power).toBe('running');
    await agent.run(vm.id);
    await compare();
    await stopped(vm.id, 2);
    expect((await agent.see(strange.body.id)).spec.power).toBe('running');
  });

  it('two replicas that compare at once, both before either has written: it is stopped and stays so', async () => {
    const id = await active();
    const generation = async () =>
      (await bench.sql<{ generation: number }>('select generation from vm where id = $1', [id]))[0]!
        .generation;
    const both = async () => {
      const held = await bench.hold('select 1 from vm where id = $1 for update', [id]);
      const comparing = Promise.all([compare(), compare()]);
      await held.waiters(2);
      await held.release();
      await comparing;
    };
    says('suspended');
    await both();
    expect(await read(id)).toMatchObject({ status: 'stopping' });
    expect(await generation()).toBe(2);
    bench.billing.standing = [];
    await both();
    expect(await read(id)).toMatchObject({ status: 'starting' });
    expect(await generation()).toBe(3);
  });

  it('an event is enough, and none is needed: the comparison finds it; billing that is away changes nothing', async () => {
    const id = await active();
    says('suspended');
    bench.billing.away = true;
    await expect(compare()).rejects.toThrow();
    expect((await read(id)).status).toBe('active');
    bench.billing.away = false;
    const event = accountSuspended({ available: '0' }, { account: bench.account });
    await bench.nebo.runtime.bus.publish([event]);
    await eventually('stopping', async () => (await read(id)).status === 'stopping');
  });

  it('empty: ephemeral machines are ended at once, with their span; the others run on', async () => {
    const [steady, brief] = [await active(), await active({ ephemeral: true })];
    const acts: AuditEvent[] = [];
    const ear = await bench.nebo.runtime.bus.subscribeAll(computeEvents.auditWritten.subject, (event) => {
      acts.push(event.data as AuditEvent);
    });
    says('empty');
    await Promise.all([compare(), compare()]);
    expect((await read(brief)).status).toBe('deleting');
    expect((await read(steady)).status).toBe('active');
    await eventually('closed', () => Promise.resolve(bench.billing.spans.get(brief)?.ended_at));
    const act = await eventually('a line for the audit log', () =>
      Promise.resolve(
        acts.some(({ resource }) => resource === `vm:${brief}`) &&
          acts.filter(({ resource }) => resource === `vm:${brief}`),
      ),
    );
    expect(act).toMatchObject([{ actor: 'service:compute', details: { why: 'the balance is used up' } }]);
    await ear.close();
    await agent.observe(await agent.see(brief, 2), 'gone');
    await eventually('no rows', async () => (await bench.remains(brief)).rows === 0);
  });

  it('forfeited: everything is removed, from every state, and nothing is left', async () => {
    const account = randomUUID();
    const as = { ...bench.key, account_id: account };
    const make = async () =>
      (await bench.api('POST', `projects/${bench.project}/vms`, bench.order(), as)).body.id as string;
    const [made, early] = [await make(), await make()];
    await agent.observe(await agent.see(made), 'running');
    says('forfeited', account);
    await compare();
    for (const id of [made, early]) {
      await eventually('no rows', async () => {
        await agent.poll();
        const wanted = agent.wanted.get(id);
        if (wanted?.gone) await agent.observe(wanted, 'gone');
        return (await bench.remains(id)).rows === 0;
      });
    }
    expect((await bench.remains(made)).ports).toBe(0);
    expect((await bench.api('GET', 'vms', undefined, as)).body.total).toBe(0);
  });
});
