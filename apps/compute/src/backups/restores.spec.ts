import { randomUUID } from 'node:crypto';
import type { BlobRef } from '@nebo/contracts';
import { keyOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';

describe('restores', () => {
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

  /** A machine that runs, and a backup of it. */
  const backedUp = async (
    more: Record<string, unknown> = {},
  ): Promise<{ vm: string; id: string; blob: BlobRef; path: string }> => {
    const { id: vm } = await agent.run((await bench.vm({ backup_count: 3, ...more })).id);
    const { id } = (await bench.api('POST', `vms/${vm}/backups`, { name: 'b' })).body;
    const blob = await agent.back(id);
    await bench.api('GET', `vms/${vm}/backups/${id}?wait=ready&timeout=30`);
    return { vm, id, blob, path: `vms/${vm}/backups/${id}` };
  };
  const restore = (path: string, body: unknown, headers: Record<string, string> = {}) =>
    bench.api('POST', `${path}/restore`, body, bench.key, headers);
  const refusal = (status: number, code: string) => ({ status, body: { error: { code } } });
  const read = (sha256: string) => agent.call('GET', `blob/${sha256}`);

  it('into the machine: its disk is made anew, it is started again, the bytes are held only so long', async () => {
    const { vm, path, blob, id } = await backedUp();
    expect((await read(blob.sha256)).status).toBe(404);
    const answer = await restore(path, { target: 'vm' });
    expect(answer).toMatchObject({ status: 202, body: { id: vm, status: 'restoring' } });
    const item = await agent.see(vm, 2);
    expect(item.spec).toMatchObject({ restore: { number: 1, blob }, power: 'running', boot: 1 });
    expect(await read(blob.sha256)).toMatchObject({
      status: 200,
      headers: { 'content-length': `${blob.bytes}` },
    });
    // An old word of the region, and one from before the disk was made, are not the end of it.
    await agent.observe({ id: vm, generation: 1 }, 'running');
    await agent.observe(item, 'stopped');
    expect((await bench.api('GET', `vms/${vm}`)).body.status).toBe('restoring');
    // Deleted meanwhile: the machine still gets its bytes.
    expect((await bench.api('DELETE', `vms/${vm}/backups/${id}`)).body.status).toBe('deleted');
    expect((await read(blob.sha256)).status).toBe(200);
    await agent.observe(item, 'starting', { facts: { restored: 1 } });
    await bench.reach(vm, 'starting');
    await agent.observe(item, 'running', { facts: { restored: 1 } });
    await bench.reach(vm, 'active');
    await eventually('bytes freed', async () => (await read(blob.sha256)).status === 404);
    const fresh = new FakeAgent(bench);
    expect((await fresh.see(vm)).spec.restore).toBe(null);
  });

  it('a stopped machine stays stopped; the next restore has the next number', async () => {
    const { vm, path } = await backedUp();
    await bench.api('POST', `vms/${vm}/stop`);
    await agent.observe(await agent.see(vm, 2), 'stopped');
    await bench.reach(vm, 'stopped');
    for (const number of [1, 2]) {
      expect((await restore(path, { target: 'vm' })).body.status).toBe('restoring');
      const item = await agent.see(vm, 2 + number);
      expect(item.spec).toMatchObject({ power: 'stopped', restore: { number } });
      await agent.observe(item, 'stopped', { facts: { restored: number } });
      await bench.reach(vm, 'stopped');
    }
    // What the region does not say any more later is still done.
    await bench.api('POST', `vms/${vm}/start`);
    await agent.observe(await agent.see(vm, 5), 'running');
    await bench.reach(vm, 'active');
  });

  it('409 while it is restored, or a backup of it is made; power can be chosen meanwhile', async () => {
    const { vm, path } = await backedUp();
    const making = (await bench.api('POST', `vms/${vm}/backups`, { name: 'c' })).body;
    expect(await restore(path, { target: 'vm' })).toMatchObject(refusal(409, 'backup_in_progress'));
    await agent.back(making.id);
    await bench.api('GET', `vms/${vm}/backups/${making.id}?wait=ready&timeout=30`);
    await restore(path, { target: 'vm' });
    expect(await restore(path, { target: 'vm' })).toMatchObject(refusal(409, 'restore_in_progress'));
    expect(await bench.api('POST', `vms/${vm}/backups`, { name: 'd' })).toMatchObject(
      refusal(409, 'restore_in_progress'),
    );
    expect((await bench.api('POST', `vms/${vm}/start`)).body.status).toBe('restoring');
    expect((await bench.api('POST', `vms/${vm}/stop`)).status).toBe(200);
    const item = await agent.see(vm, 3);
    await agent.observe(item, 'stopped', { facts: { restored: 1 } });
    await bench.reach(vm, 'stopped');
  });

  it('what the region cannot restore is failed with its reason; a start tries again', async () => {
    const { vm, path } = await backedUp();
    await restore(path, { target: 'vm' });
    await agent.observe(await agent.see(vm, 2), 'failed', { reason: 'the backup cannot be read' });
    expect(await bench.reach(vm, 'failed')).toMatchObject({ status_reason: 'the backup cannot be read' });
    await bench.api('POST', `vms/${vm}/start`);
    expect((await bench.api('GET', `vms/${vm}`)).body.status).toBe('restoring');
    const item = await agent.see(vm, 3);
    expect(item.spec.restore).toMatchObject({ number: 1 });
    await agent.observe(item, 'running', { facts: { restored: 1 } });
    await bench.reach(vm, 'active');
  });

  it('a machine that has failed can be restored: what it said before does not count any more', async () => {
    const { vm, path } = await backedUp();
    await bench.api('POST', `vms/${vm}/restart`);
    await agent.observe(await agent.see(vm, 2), 'failed', { reason: 'the disk is broken' });
    await bench.reach(vm, 'failed');
    expect((await restore(path, { target: 'vm' })).body.status).toBe('restoring');
    const item = await agent.see(vm, 3);
    await agent.observe(item, 'running', { facts: { restored: 1 } });
    expect(await bench.reach(vm, 'active')).toMatchObject({ status_reason: null });
  });

  it('a region that is late: the status says why, and its report counts whenever it comes', async () => {
    const { vm, path } = await backedUp();
    await restore(path, { target: 'vm' });
    const phase = async () =>
      (await bench.sql<{ phase: string }>('select phase from vm where id = $1', [vm]))[0]!.phase;
    await eventually('restoring', async () => (await phase()) === 'restoring');
    await bench.sql(
      `update lifecycle set entered_at = now() - interval '1 day', run_at = now(), wakes = wakes + 1
       where kind = 'vm' and id = $1`,
      [vm],
    );
    await eventually('overdue', async () => (await phase()) === 'overdue');
    expect((await bench.api('GET', `vms/${vm}`)).body).toMatchObject({
      status: 'restoring',
      status_reason: expect.stringContaining('the region has not restored its disk'),
    });
    await agent.observe(await agent.see(vm, 2), 'running', { facts: { restored: 1 } });
    expect(await bench.reach(vm, 'active')).toMatchObject({ status_reason: null });
  });

  it('409 for a backup that is not ready, into the machine or a new one', async () => {
    const vm = (await agent.run((await bench.vm({ backup_count: 1 })).id)).id as string;
    const { id } = (await bench.api('POST', `vms/${vm}/backups`, { name: 'b' })).body;
    const order = { target: 'new', vm: { name: 'copy' } };
    for (const body of [{ target: 'vm' }, order])
      expect(await restore(`vms/${vm}/backups/${id}`, body)).toMatchObject(refusal(409, 'backup_not_ready'));
    await agent.observeBackup(await agent.seeBackup(id), 'failed');
    await bench.api('GET', `vms/${vm}/backups/${id}?wait=error&timeout=30`);
    expect(await restore(`vms/${vm}/backups/${id}`, { target: 'vm' })).toMatchObject(
      refusal(409, 'backup_not_ready'),
    );
  });

  it.each([
    ['no target', {}],
    ['an unknown target', { target: 'elsewhere' }],
    ['a new machine without its order', { target: 'new' }],
    ['an order for the machine itself', { target: 'vm', vm: { name: 'x' } }],
    ['an order without a name', { target: 'new', vm: {} }],
    ['an order that is a list', { target: 'new', vm: [] }],
    ['a blank name', { target: 'new', vm: { name: ' ' } }],
    ['a bad host name', { target: 'new', vm: { name: 'x', hostname: 'Not Good' } }],
    ['a disk below the backup’s', { target: 'new', vm: { name: 'x', disk_size_gb: 5 } }],
  ])('422 for %s', async (_what, body) => {
    const { vm, path } = await (shared ??= backedUp());
    expect(await restore(path, body)).toMatchObject(refusal(422, 'validation_error'));
    expect((await bench.api('GET', `vms/${vm}`)).body.status).toBe('active');
  });
  let shared: ReturnType<typeof backedUp> | undefined;

  it('404 for the ids of the path before 422 for the body; a repeat is answered also when the backup is gone', async () => {
    const { vm, path } = await backedUp();
    const other = await backedUp();
    for (const where of [
      `vms/${vm}/backups/${randomUUID()}`,
      `vms/${vm}/backups/${other.id}`,
      `vms/${vm}/backups/none`,
    ])
      for (const body of [{}, { target: 'elsewhere' }, undefined])
        expect(await restore(where, body)).toMatchObject(refusal(404, 'not_found'));
    expect(await restore(path, undefined)).toMatchObject(refusal(422, 'validation_error'));
    const again = { 'idempotency-key': randomUUID() };
    const copy = { target: 'new', vm: { name: `copy ${randomUUID()}` } };
    const first = await restore(path, copy, again);
    expect(first.status).toBe(202);
    expect((await bench.api('DELETE', path)).body.status).toBe('deleted');
    expect(await restore(path, copy, again)).toMatchObject({ status: 202, body: { id: first.body.id } });
  });

  it('into a new machine: ordered and paid like any other, in the same project and region', async () => {
    const { vm, path, blob } = await backedUp({ disk_size_gb: 12 });
    const answer = await restore(path, { target: 'new', vm: { name: `copy ${randomUUID()}` } });
    expect(answer).toMatchObject({
      status: 202,
      body: {
        status: 'pending',
        project_id: bench.project,
        cluster_id: bench.region,
        image_id: bench.image,
        hostname: 'web',
        vm_plan_id: bench.plans['nano'],
        disk_size: 12,
      },
    });
    const copy = answer.body.id as string;
    expect(copy).not.toBe(vm);
    const item = await agent.see(copy);
    expect(item.spec).toMatchObject({ restore: { number: 1, blob }, default_user: 'me', disk_gb: 12 });
    // It runs only once its disk is the backup's.
    await agent.observe(item, 'running');
    expect((await bench.api('GET', `vms/${copy}`)).body.status).toBe('provisioning');
    await agent.observe(item, 'running', { facts: { restored: 1 } });
    await bench.reach(copy, 'active');
    // A month of the plan, and of 2 GB beyond its disk.
    expect((await bench.remains(copy)).charged).toBe(258_000_000_000n);
    expect((await bench.api('GET', `vms/${vm}`)).body.status).toBe('active');
    expect((await read(blob.sha256)).status).toBe(404);
  });

  it('into a new machine: 409 for a taken name, 402 without money, 403 without vm:create, 404 for what it names; nothing is made', async () => {
    const { path, vm } = await backedUp();
    const { name } = (await bench.api('GET', `vms/${vm}`)).body;
    const total = async () => (await bench.api('GET', 'vms?limit=1')).body.total as number;
    const before = await total();
    const order = (more: Record<string, unknown>) =>
      restore(path, { target: 'new', vm: { name: randomUUID(), ...more } });
    expect(await order({ name })).toMatchObject(refusal(409, 'name_taken'));
    expect(await order({ vm_plan_id: randomUUID() })).toMatchObject(refusal(404, 'not_found'));
    expect(await order({ ssh_key_ids: [randomUUID()] })).toMatchObject(refusal(404, 'not_found'));
    const may = (...actions: string[]) =>
      keyOf(bench.account, { policy: [{ effect: 'allow', actions, resources: ['*'] }] });
    const body = { target: 'new', vm: { name: randomUUID() } };
    expect(await bench.api('POST', `${path}/restore`, body, may('vm:read', 'vm:update'))).toMatchObject({
      status: 403,
      body: { error: { message: expect.stringContaining('vm:create') } },
    });
    bench.billing.available = 0n;
    expect(await order({})).toMatchObject(refusal(402, 'insufficient_balance'));
    bench.billing.available = 10n ** 15n;
    bench.billing.away = true;
    expect(await order({})).toMatchObject(refusal(503, 'billing_unavailable'));
    bench.billing.away = false;
    expect(await total()).toBe(before);
    expect((await bench.api('POST', `${path}/restore`, body, may('vm:create', 'vm:update'))).status).toBe(
      202,
    );
  });

  it('a backup that is deleted while the order is paid: 409 or 404, nothing is charged', async () => {
    const { path, vm, id } = await backedUp();
    const [deleted, ordered] = await Promise.all([
      bench.api('DELETE', `vms/${vm}/backups/${id}`),
      restore(path, { target: 'new', vm: { name: randomUUID() } }),
    ]);
    expect(deleted.status).toBe(202);
    // Whoever comes second sees what the first did.
    if (ordered.status === 202) {
      const [row] = await bench.sql<{ restore_sha256: string | null }>(
        'select restore_sha256 from vm where id = $1',
        [ordered.body.id],
      );
      expect(row!.restore_sha256).toMatch(/^[0-9a-f]{64}$/);
    } else expect(ordered).toMatchObject(refusal(404, 'not_found'));
  });

  it('repeats with the same Idempotency-Key restore once, into the machine and into a new one', async () => {
    const { path, vm } = await backedUp();
    const one = { 'idempotency-key': randomUUID() };
    const order = { target: 'new', vm: { name: randomUUID() } };
    const first = await restore(path, order, one);
    expect((await restore(path, order, one)).body.id).toBe(first.body.id);
    const two = { 'idempotency-key': randomUUID() };
    await restore(path, { target: 'vm' }, two);
    expect(await restore(path, { target: 'vm' }, two)).toMatchObject({ status: 202, body: { id: vm } });
    expect((await agent.see(vm, 2)).spec.restore?.number).toBe(1);
  });

  it('the state of the guest agent is shown while the machine runs', async () => {
    const { id } = await agent.run((await bench.vm()).id);
    const show = async () => {
      const { guest_agent_state, guest_agent_checked_at } = (await bench.api('GET', `vms/${id}`)).body;
      return { guest_agent_state, guest_agent_checked_at };
    };
    expect(await show()).toEqual({ guest_agent_state: null, guest_agent_checked_at: null });
    for (const state of ['absent', 'connected']) {
      const at = new Date(Date.now() + 60_000).toISOString();
      await agent.observe(agent.wanted.get(id)!, 'running', { facts: { guest_agent: state }, at });
      expect(await show()).toEqual({ guest_agent_state: state, guest_agent_checked_at: at });
    }
    await bench.api('POST', `vms/${id}/stop`);
    expect(await show()).toEqual({ guest_agent_state: null, guest_agent_checked_at: null });
    await agent.observe(await agent.see(id, 2), 'stopped', { facts: { guest_agent: 'connected' } });
    await bench.reach(id, 'stopped');
    expect(await show()).toEqual({ guest_agent_state: null, guest_agent_checked_at: null });
  });
});
