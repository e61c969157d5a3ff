import type { TestAnswer } from '@nebo/service-kit/testing';
import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';

describe('backups', () => {
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

  const machine = async (slots = 2): Promise<string> =>
    (await agent.run((await bench.vm({ backup_count: slots })).id)).id;
  const order = (vm: string, more: Record<string, unknown> = {}, headers: Record<string, string> = {}) =>
    bench.api('POST', `vms/${vm}/backups`, { name: 'nightly', ...more }, bench.key, headers);
  const made = async (vm: string): Promise<string> => {
    const { id } = (await order(vm)).body;
    await agent.back(id);
    await reach(vm, id, 'ready');
    return id;
  };
  const reach = async (vm: string, id: string, status: string): Promise<TestAnswer['body']> => {
    const { body } = await bench.api('GET', `vms/${vm}/backups/${id}?wait=${status}&timeout=30`);
    expect(body.status).toBe(status);
    return body;
  };
  const refusal = (status: number, code: string) => ({ status, body: { error: { code } } });

  it('is ordered, made by the region, read by both paths; an order is 201 with what is known so far', async () => {
    const vm = await machine();
    const ordered = await order(vm, { description: 'before the update' });
    expect(ordered).toMatchObject({
      status: 201,
      body: {
        vm_id: vm,
        name: 'nightly',
        description: 'before the update',
        status: 'pending',
        type: 'manual',
        error: null,
        size_bytes: null,
        parent_backup_id: null,
        consistency: null,
        disk_size: 10,
        simulated: null,
      },
    });
    const { id } = ordered.body;
    const item = await agent.seeBackup(id);
    expect(item).toMatchObject({ gone: false, spec: { vm_id: vm, account_id: bench.account } });
    await agent.observeBackup(item, 'creating');
    await reach(vm, id, 'creating');
    const blob = await agent.back(id, Buffer.from('the disk'), 'frozen');
    const ready = await reach(vm, id, 'ready');
    expect(ready).toMatchObject({
      size_bytes: blob.bytes,
      consistency: 'frozen',
      simulated: true,
      error: null,
    });
    for (const path of [
      `vms/${vm}/backups/${id}`,
      `projects/${bench.project}/vms/${vm}/backups/${id}`,
      `vms/${vm.toUpperCase()}/backups/${id.toUpperCase()}`,
    ])
      expect(await bench.api('GET', path)).toMatchObject({ status: 200, body: ready });
    // The region hears no more of it: it has nothing of it.
    const fresh = new FakeAgent(bench);
    await fresh.poll();
    expect(fresh.backups.has(id)).toBe(false);
  });

  it('lists a machine’s own page by page, oldest first', async () => {
    const vm = await machine(3);
    const ids: string[] = [];
    for (let n = 0; n < 3; n += 1) ids.push(await made(vm));
    const { body } = await bench.api('GET', `vms/${vm}/backups?limit=2&offset=1`);
    expect(body).toMatchObject({ count: 2, total: 3, limit: 2, offset: 1 });
    expect(body.data.map((row: { id: string }) => row.id)).toEqual(ids.slice(1));
    const all = await bench.api('GET', `projects/${bench.project}/vms/${vm}/backups`);
    expect(all.body.data.map((row: { id: string }) => row.id)).toEqual(ids);
    expect((await bench.api('GET', `vms/${await machine()}/backups`)).body).toMatchObject({
      data: [],
      total: 0,
    });
  });

  it('404 for an unknown one, one of another machine, another project, another account; 401 without a key', async () => {
    const [vm, other] = [await machine(), await machine()];
    const id = await made(vm);
    for (const [path, as] of [
      [`vms/${vm}/backups/${randomUUID()}`, bench.key],
      [`vms/${vm}/backups/none`, bench.key],
      [`vms/${other}/backups/${id}`, bench.key],
      [`projects/${randomUUID()}/vms/${vm}/backups/${id}`, bench.key],
      [`vms/${vm}/backups/${id}`, bench.stranger],
    ] as const) {
      for (const method of ['GET', 'DELETE'])
        expect(await bench.api(method, path, undefined, as)).toMatchObject(refusal(404, 'not_found'));
      expect(await bench.api('POST', `${path}/restore`, { target: 'vm' }, as)).toMatchObject(
        refusal(404, 'not_found'),
      );
    }
    for (const [path, as] of [
      [`vms/${randomUUID()}/backups`, bench.key],
      [`vms/${vm}/backups`, bench.stranger],
      [`projects/${randomUUID()}/vms/${vm}/backups`, bench.key],
    ] as const) {
      expect((await bench.api('GET', path, undefined, as)).status).toBe(404);
      expect((await bench.api('POST', path, { name: 'x' }, as)).status).toBe(404);
    }
    expect((await bench.api('GET', `vms/${vm}/backups/${id}`, undefined, null)).status).toBe(401);
    expect((await bench.api('GET', `vms/${vm}/backups/${id}`)).body.status).toBe('ready');
  });

  it('422 for a body that is none, a blank or a long name, a wait that is none', async () => {
    const vm = await machine();
    for (const body of [{}, { name: '' }, { name: '  ' }, { name: 'x'.repeat(256) }, { name: 1 }])
      expect((await bench.api('POST', `vms/${vm}/backups`, body)).status).toBe(422);
    expect((await order(vm, { description: 'x'.repeat(2_001) })).status).toBe(422);
    expect((await bench.api('GET', `vms/${vm}/backups?limit=201`)).status).toBe(422);
    expect((await bench.api('GET', `vms/${vm}/backups/${randomUUID()}?wait=done`)).status).toBe(422);
    expect((await bench.api('GET', `vms/${vm}/backups`)).body.total).toBe(0);
  });

  it('409 for a machine that was never made, could not be, or is being deleted', async () => {
    const fresh = await bench.vm({ backup_count: 1 });
    expect(await order(fresh.id)).toMatchObject(refusal(409, 'vm_not_ready'));
    await agent.observe(await agent.see(fresh.id), 'failed', { reason: 'no room' });
    await bench.reach(fresh.id, 'error');
    expect(await order(fresh.id)).toMatchObject(refusal(409, 'vm_not_ready'));
    const vm = await machine();
    await bench.api('DELETE', `vms/${vm}`);
    expect(await order(vm)).toMatchObject(refusal(409, 'vm_deleting'));
  });

  it('409 no_backup_slot when all are taken, also for two orders at once; a deleted one frees its slot', async () => {
    const none = await machine(0);
    expect(await order(none)).toMatchObject(refusal(409, 'no_backup_slot'));
    const vm = await machine(1);
    const answers = await Promise.all([1, 2, 3, 4].map(() => order(vm)));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409, 409, 409]);
    const { id } = answers.find(({ status }) => status === 201)!.body;
    expect(await order(vm)).toMatchObject(refusal(409, 'backup_in_progress'));
    await agent.back(id);
    await reach(vm, id, 'ready');
    expect(await order(vm)).toMatchObject(refusal(409, 'no_backup_slot'));
    expect(await bench.api('DELETE', `vms/${vm}/backups/${id}`)).toMatchObject({
      status: 202,
      body: { status: 'deleted' },
    });
    expect((await bench.api('GET', `vms/${vm}/backups/${id}`)).status).toBe(404);
    expect((await order(vm)).status).toBe(201);
  });

  it('a failed one says why, takes no slot, and is forgotten with the next order', async () => {
    const vm = await machine(1);
    const { id } = (await order(vm)).body;
    await agent.observeBackup(await agent.seeBackup(id), 'failed', { reason: 'the disk cannot be read' });
    expect(await reach(vm, id, 'error')).toMatchObject({
      error: 'the disk cannot be read',
      size_bytes: null,
    });
    const next = await order(vm);
    expect(next.status).toBe(201);
    const { body } = await bench.api('GET', `vms/${vm}/backups`);
    expect(body.data.map((row: { id: string }) => row.id)).toEqual([next.body.id]);
  });

  it('a repeated order with the same Idempotency-Key makes one', async () => {
    const vm = await machine();
    const headers = { 'idempotency-key': randomUUID() };
    const first = await order(vm, {}, headers);
    expect((await order(vm, {}, headers)).body).toEqual(first.body);
    expect((await bench.api('GET', `vms/${vm}/backups`)).body.total).toBe(1);
  });

  it('DELETE before the region heard of it: gone at once; while it is made: when the region confirms, or after the time', async () => {
    const vm = await machine();
    const early = (await order(vm)).body.id;
    expect((await bench.api('DELETE', `vms/${vm}/backups/${early}`)).body).toEqual({ status: 'deleted' });

    const late = (await order(vm)).body.id;
    await agent.observeBackup(await agent.seeBackup(late), 'creating');
    const path = `vms/${vm}/backups/${late}`;
    expect((await bench.api('DELETE', path)).body).toEqual({ status: 'deleting' });
    expect((await bench.api('DELETE', path)).body).toEqual({ status: 'deleting' });
    expect((await bench.api('GET', path)).body.status).toBe('deleting');
    expect(await order(vm)).toMatchObject(refusal(409, 'backup_in_progress'));
    const item = await agent.seeBackup(late, 2);
    expect(item.gone).toBe(true);
    await agent.observeBackup(item, 'gone');
    await eventually('gone', async () => (await bench.api('GET', path)).status === 404);

    const silent = (await order(vm)).body.id;
    await agent.seeBackup(silent);
    await bench.api('DELETE', `vms/${vm}/backups/${silent}`);
    await eventually('deleting', async () => (await phase(silent)) === 'deleting');
    await miss(silent);
    await eventually('gone', async () => (await phase(silent)) === undefined);
    expect((await order(vm)).status).toBe(201);
  });

  it('a machine’s deletion deletes its backups, made or under way', async () => {
    const vm = await machine(3);
    const ready = await made(vm);
    const going = (await order(vm)).body.id;
    await agent.seeBackup(going);
    await bench.api('DELETE', `vms/${vm}`);
    expect((await bench.api('GET', `vms/${vm}/backups/${ready}`)).status).toBe(404);
    expect((await bench.api('GET', `vms/${vm}/backups/${going}`)).body.status).toBe('deleting');
    expect((await agent.seeBackup(going, 2)).gone).toBe(true);
    await agent.observe(await agent.see(vm, 2), 'gone');
    await eventually('no rows', async () => (await bench.remains(vm)).rows === 0);
    expect(await bench.sql('select 1 from vm_backup where vm_id = $1', [vm])).toEqual([]);
    const alive = 'select 1 from lifecycle where id = any($1::uuid[]) and ended_at is null';
    await eventually('ended', async () => (await bench.sql(alive, [[ready, going]])).length === 0);
  });

  const phase = async (id: string) =>
    (await bench.sql<{ phase: string }>('select phase from vm_backup where id = $1', [id]))[0]?.phase;
  /** Lets the deadline of the present state pass. */
  const miss = (id: string) =>
    bench.sql(
      `update lifecycle set entered_at = now() - interval '1 day', run_at = now(), wakes = wakes + 1
       where kind = 'backup' and id = $1`,
      [id],
    );

  it.each([
    ['that never begins', 'pending', 'no region has begun it'],
    ['that never ends', 'creating', 'the region has not finished it'],
  ])(
    'a region %s: an error with the reason, and the region is told to drop it',
    async (_what, at, reason) => {
      const vm = await machine();
      const { id } = (await order(vm)).body;
      const item = await agent.seeBackup(id);
      if (at === 'creating') await agent.observeBackup(item, 'creating');
      await eventually(at, async () => (await phase(id)) === at);
      await miss(id);
      expect((await reach(vm, id, 'error')).error).toContain(reason);
      expect((await agent.seeBackup(id, 2)).gone).toBe(true);
      // What it says of the old order comes too late.
      await agent.observeBackup(item, 'failed', { reason: 'late' });
      expect((await bench.api('GET', `vms/${vm}/backups/${id}`)).body.error).toContain(reason);
      expect((await bench.api('DELETE', `vms/${vm}/backups/${id}`)).body.status).toBe('deleted');
    },
  );

  it('a word of the region without its bytes, or with others, is an error; final words stay', async () => {
    const vm = await machine();
    const { id } = (await order(vm)).body;
    const item = await agent.seeBackup(id);
    const facts = { driver: 'fake', real: true, consistency: 'stopped' };
    const absent = { sha256: 'a'.repeat(64), bytes: 5 };
    expect(await agent.observeBackup(item, 'ready', { facts: { ...facts, blob: absent } })).toBe(1);
    expect((await reach(vm, id, 'error')).error).toContain('did not arrive');

    const next = (await order(vm)).body.id;
    const blob = await agent.put(Buffer.from('short'));
    const again = await agent.seeBackup(next);
    await agent.observeBackup(again, 'ready', { facts: { ...facts, blob: { ...blob, bytes: 6 } } });
    expect((await reach(vm, next, 'error')).error).toContain('did not arrive');

    const last = await made(vm);
    const known = agent.backups.get(last)!;
    expect(await agent.observeBackup(known, 'gone')).toBe(0);
    expect(await agent.observeBackup(known, 'failed')).toBe(0);
    expect((await bench.api('GET', `vms/${vm}/backups/${last}`)).body.status).toBe('ready');
  });

  it('goes on in another process from every phase', async () => {
    const [pending, creating, deleting] = await Promise.all([machine(), machine(), machine()]);
    const ids: string[] = [];
    for (const vm of [pending, creating, deleting]) ids.push((await order(vm)).body.id);
    await agent.observeBackup(await agent.seeBackup(ids[1]!), 'creating');
    await agent.seeBackup(ids[2]!);
    await bench.api('DELETE', `vms/${deleting}/backups/${ids[2]}`);
    await bench.reopen();
    agent = new FakeAgent(bench);
    for (const [n, vm] of [pending, creating].entries()) {
      await agent.back(ids[n]!);
      await reach(vm, ids[n]!, 'ready');
    }
    // What was called off is not in the whole of what is wanted, at most said to be gone afterwards (its row may have been locked
    // when the whole was read); its end needs no word of the region.
    expect(agent.backups.get(ids[2]!)?.gone ?? true).toBe(true);
    await eventually('deleting', async () => (await phase(ids[2]!)) === 'deleting');
    await miss(ids[2]!);
    await eventually('gone', async () => (await phase(ids[2]!)) === undefined);
  });

  it('another region’s word on it changes nothing', async () => {
    const vm = await machine();
    const { id } = (await order(vm)).body;
    const item = await agent.seeBackup(id);
    const far = (await bench.internal('POST', 'operator/regions', { name: `far-${Date.now()}` })).body.id;
    const stranger = new FakeAgent(bench, { kind: 'agent', region_id: far, epoch: 1 });
    await stranger.poll();
    expect(stranger.backups.size).toBe(0);
    expect(await stranger.observeBackup(item, 'failed')).toBe(0);
  });
});
