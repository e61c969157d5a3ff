import { randomUUID } from 'node:crypto';
import type { KeyIdentity, PolicyStatement } from '@nebo/contracts';
import { keyOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';

describe('machines', () => {
  let bench: Bench;
  let agent: FakeAgent;
  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const power = (id: string, verb: string, body?: unknown, headers: Record<string, string> = {}) =>
    bench.api('POST', `vms/${id}/${verb}`, body, bench.key, headers);

  it('is read by both paths, by an id in upper case; 404 under another project and for another account', async () => {
    const vm = await bench.vm();
    const inProject = `projects/${bench.project}/vms/${vm.id}`;
    for (const path of [`vms/${vm.id}`, inProject, `vms/${vm.id.toUpperCase()}`])
      expect(await bench.api('GET', path)).toMatchObject({ status: 200, body: { id: vm.id } });
    for (const [path, as] of [
      [`projects/${randomUUID()}/vms/${vm.id}`, bench.key],
      [inProject, bench.stranger],
      [`vms/${randomUUID()}`, bench.key],
      ['vms/none', bench.key],
    ] as const)
      expect(await bench.api('GET', path, undefined, as)).toMatchObject({
        status: 404,
        body: { error: { code: 'not_found' } },
      });
    expect((await bench.api('GET', `vms/${vm.id}`, undefined, null)).status).toBe(401);
    expect((await bench.internal('GET', `owners/vm/${vm.id}`)).body).toEqual({
      account_id: bench.account,
      project_id: bench.project,
      parents: [],
    });
    expect((await bench.internal('GET', `owners/vm/${randomUUID()}`)).status).toBe(404);
  });

  it('the number of machines is kept right, however they come and go', async () => {
    const counts = async () =>
      bench.sql(
        `select coalesce(c.machines, 0) as kept, coalesce(v.machines, 0)::int as counted from vm_count c full join
           (select account_id, project_id, count(*) as machines from vm where not unlisted group by 1, 2) v
           using (account_id, project_id) where coalesce(c.machines, 0) <> coalesce(v.machines, 0)`,
      );
    const some = await Promise.all([1, 2, 3, 4].map(() => bench.vm()));
    const made = (await agent.run((await bench.vm()).id)).id;
    expect(await counts()).toEqual([]);
    await Promise.all(some.map(({ id }) => bench.api('DELETE', `vms/${id}`)));
    await bench.api('DELETE', `vms/${made}`);
    expect(await counts()).toEqual([]);
    await agent.observe(await agent.see(made, 2), 'gone');
    await eventually('gone', async () => (await bench.api('GET', `vms/${made}`)).status === 404);
    expect(await counts()).toEqual([]);
  });

  it('lists what the policy shows, page by page in the order of creation', async () => {
    const project = randomUUID();
    const made: string[] = [];
    for (let n = 0; n < 3; n += 1)
      made.push((await bench.api('POST', `projects/${project}/vms`, bench.order())).body.id);
    const list = async (path: string, as?: KeyIdentity) => {
      const { body } = await bench.api('GET', path, undefined, as);
      return { ids: body.data.map(({ id }: { id: string }) => id), count: body.count, total: body.total };
    };
    expect(await list(`projects/${project}/vms`)).toEqual({ ids: made, count: 3, total: 3 });
    expect(await list(`vms?project_id=${project}&limit=2&offset=2`)).toEqual({
      ids: made.slice(2),
      count: 1,
      total: 3,
    });
    // From whichever end a page is counted, pages fit together.
    for (let limit = 1; limit <= 4; limit += 1)
      for (let offset = 0; offset <= 4; offset += 1)
        expect((await list(`vms?project_id=${project}&limit=${limit}&offset=${offset}`)).ids).toEqual(
          made.slice(offset, offset + limit),
        );
    expect((await list(`projects/${project}/vms`, bench.stranger)).ids).toEqual([]);
    const policyOf = (...statements: [PolicyStatement['effect'], string][]) =>
      keyOf(bench.account, {
        policy: statements.map(([effect, resource]) => ({
          effect,
          actions: ['vm:read'],
          resources: [resource],
        })),
      });
    expect((await list('vms', policyOf(['allow', `vm:${made[1]}`]))).ids).toEqual([made[1]]);
    expect(
      (await list('vms', policyOf(['allow', `project:${project}`], ['deny', `vm:${made[0]}`]))).ids,
    ).toEqual(made.slice(1));
    expect((await list('vms', policyOf(['allow', `app:${randomUUID()}`]))).ids).toEqual([]);
    expect((await list('vms?project_id=none')).ids).toEqual([]);
    expect((await list('vms', keyOf(bench.account, { project_ids: [project] }))).ids).toEqual(made);
  });

  it('PATCH changes the name and whether it is renewed: 409 for a taken name, 422 for a blank one', async () => {
    const [vm, other] = [await bench.vm(), await bench.vm()];
    const name = `new ${randomUUID()}`;
    expect((await bench.api('PATCH', `vms/${vm.id}`, { name, auto_renew: false })).body).toMatchObject({
      name,
      auto_renew: false,
    });
    expect((await bench.api('GET', `vms/${vm.id}`)).body).toMatchObject({ name, auto_renew: false });
    expect((await bench.api('PATCH', `vms/${vm.id}`, {})).body).toMatchObject({ name, auto_renew: false });
    expect(await bench.api('PATCH', `vms/${other.id}`, { name: name.toUpperCase() })).toMatchObject({
      status: 409,
      body: { error: { code: 'name_taken' } },
    });
    expect((await bench.api('PATCH', `vms/${vm.id}`, { name: '  ' })).status).toBe(422);
    expect((await bench.api('PATCH', `vms/${vm.id}`, { auto_renew: 'yes' })).status).toBe(422);
    expect((await bench.api('PATCH', `vms/${vm.id}`, { name: 'x' }, bench.stranger)).status).toBe(404);
  });

  it('stop, start and restart answer with the state entered, then with the present one; the region makes it so', async () => {
    const { id } = await agent.run((await bench.vm()).id);
    expect((await power(id, 'start')).body).toMatchObject({ status: 'active' });

    expect(await power(id, 'stop')).toMatchObject({ status: 200, body: { status: 'stopping' } });
    expect((await power(id, 'stop')).body).toMatchObject({
      status: 'stopping',
      message: expect.stringContaining('nothing'),
    });
    expect((await bench.api('GET', `vms/${id}`)).body.status).toBe('stopping');
    const stop = await agent.see(id, 2);
    expect(stop.spec.power).toBe('stopped');
    await agent.observe(stop, 'stopped');
    await bench.reach(id, 'stopped');
    expect(await power(id, 'restart')).toMatchObject({
      status: 409,
      body: { error: { code: 'vm_stopped' } },
    });

    expect((await power(id, 'start', { renew: false })).body.status).toBe('starting');
    await agent.observe(await agent.see(id, 3), 'running');
    await bench.reach(id, 'active');

    expect((await power(id, 'restart')).body.status).toBe('restarting');
    expect((await bench.api('GET', `vms/${id}`)).body.status).toBe('restarting');
    const again = await agent.see(id, 4);
    expect(again.spec).toMatchObject({ power: 'running', boot: 2 });
    // Still up from before: what counts is that it was started anew.
    await agent.observe(again, 'running', { facts: { boot: 1 } });
    expect((await bench.api('GET', `vms/${id}`)).body.status).toBe('restarting');
    await agent.observe(again, 'running');
    await bench.reach(id, 'active');
  });

  it('a repeated restart with the same Idempotency-Key restarts once', async () => {
    const { id } = await agent.run((await bench.vm()).id);
    const headers = { 'idempotency-key': randomUUID() };
    await power(id, 'restart', undefined, headers);
    await agent.observe(await agent.see(id, 2), 'running');
    await bench.reach(id, 'active');
    expect((await power(id, 'restart', undefined, headers)).body.status).toBe('restarting');
    expect((await bench.api('GET', `vms/${id}`)).body.status).toBe('active');
  });

  it('409 for a power action before it is made; 404 for another account', async () => {
    const vm = await bench.vm();
    for (const verb of ['start', 'stop', 'restart']) {
      expect(await power(vm.id, verb)).toMatchObject({
        status: 409,
        body: { error: { code: 'vm_not_ready' } },
      });
      expect((await bench.api('POST', `vms/${vm.id}/${verb}`, undefined, bench.stranger)).status).toBe(404);
    }
    expect((await power(vm.id, 'start', { renew: 'yes' })).status).toBe(422);
  });

  it('a machine that fails says why, and a start tries again', async () => {
    const { id } = await agent.run((await bench.vm()).id);
    await power(id, 'restart');
    await agent.observe(await agent.see(id, 2), 'failed', { reason: 'the disk is broken' });
    expect(await bench.reach(id, 'failed')).toMatchObject({ status_reason: 'the disk is broken' });
    expect((await power(id, 'start')).body.status).toBe('starting');
    await agent.observe(await agent.see(id, 3), 'running');
    await bench.reach(id, 'active');
  });

  it('wait answers when the state is reached, at a bad end, or after the time; 422 for a word that is none', async () => {
    const vm = await bench.vm();
    const waiting = bench.api('GET', `vms/${vm.id}?wait=active&timeout=30`);
    await agent.run(vm.id);
    expect((await waiting).body.status).toBe('active');
    expect((await bench.api('GET', `vms/${vm.id}?wait=stopped&timeout=1`)).body.status).toBe('active');
    const bad = bench.api('GET', `vms/${vm.id}?wait=stopped&timeout=30`);
    await bench.api('DELETE', `vms/${vm.id}`);
    expect((await bad).body.status).toBe('deleting');
    for (const query of ['wait=ready', 'wait=active&timeout=61', 'timeout=x'])
      expect((await bench.api('GET', `vms/${vm.id}?${query}`)).status).toBe(422);
  });

  it('DELETE: deleting until the region confirms, listed meanwhile, its name taken; then nothing is left', async () => {
    const { id, name } = await agent.run((await bench.vm()).id);
    expect(await bench.api('DELETE', `vms/${id}`)).toMatchObject({
      status: 202,
      body: { status: 'deleting' },
    });
    expect((await bench.api('DELETE', `vms/${id}`)).body).toEqual({ status: 'deleting' });
    expect(await power(id, 'start')).toMatchObject({ status: 409, body: { error: { code: 'vm_deleting' } } });
    expect((await bench.api('GET', `vms/${id}`)).body.status).toBe('deleting');
    expect((await bench.create({ name })).status).toBe(409);
    const item = await agent.see(id, 2);
    expect(item).toMatchObject({ gone: true, spec: { user_data: null } });
    await agent.observe(item, 'stopping');
    expect((await bench.remains(id)).ports).toBe(1);
    await agent.observe(item, 'gone');
    await eventually('404', async () => (await bench.api('GET', `vms/${id}`)).status === 404);
    // What ran is not paid back.
    await eventually('no rows', async () => (await bench.remains(id)).rows === 0);
    expect(await bench.remains(id)).toEqual({ rows: 0, ports: 0, charged: 240_000_000_000n });
    expect((await bench.api('DELETE', `vms/${id}`)).status).toBe(404);
    expect((await bench.create({ name })).status).toBe(201);
  });
});
