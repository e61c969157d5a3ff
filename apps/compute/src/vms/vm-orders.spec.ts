import { randomUUID } from 'node:crypto';
import { keyOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent, publicKey } from '../../test/harness.js';
import { prices } from '../../test/stubs.js';

describe('orders of machines', () => {
  let bench: Bench;
  let agent: FakeAgent;
  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  afterEach(() => {
    bench.billing.away = false;
    bench.billing.available = 10n ** 15n;
    bench.billing.project = { status: 200, body: {} };
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const count = async () =>
    (await bench.sql<{ count: number }>('select count(*)::int as count from vm'))[0]!.count;
  const held = () => [...bench.billing.reservations.values()].filter(({ state }) => state === 'held').length;

  it('201: charged for its period, then wanted of the region with everything that was ordered', async () => {
    const key = (await bench.api('POST', 'ssh-keys', { name: 'k', public_key: publicKey() })).body;
    const name = `web ${randomUUID()}`;
    const vm = await bench.vm({
      name,
      ssh_key_ids: [key.id],
      cloud_init: '#cloud-config\npassword: secret',
      disk_size_gb: 15,
      backup_count: 2,
      period_months: 3,
      auto_renew: false,
      some_unknown_field: 1,
    });
    expect(vm).toMatchObject({
      name,
      hostname: 'web',
      status: 'pending',
      project_id: bench.project,
      vcpu: 1,
      mem: 1024,
      disk_size: 15,
      ephemeral: false,
      image_id: bench.image,
      cluster_id: bench.region,
      auto_renew: false,
      simulated: null,
    });
    const { spec } = await agent.see(vm.id);
    expect(spec).toMatchObject({
      account_id: bench.account,
      hostname: 'web',
      vcpu: 1,
      memory_mb: 1024,
      disk_gb: 15,
      image: { id: bench.image, filename: 'tiny-1.qcow2' },
      default_user: 'me',
      ssh_keys: [key.public_key],
      user_data: '#cloud-config\npassword: secret',
      power: 'running',
      boot: 1,
    });
    expect(spec.interfaces).toEqual([
      {
        id: expect.any(String),
        name: 'eth0',
        vpc_id: bench.networking.vpc,
        mac: expect.any(String),
        address: expect.any(String),
      },
    ]);
    const month =
      prices['vm.nano.month']! + 5n * prices['disk.gb.month']! + 2n * prices['backup.slot.month']!;
    expect(bench.billing.charged(vm.id)).toBe(3n * month);
    const active = await agent.run(vm.id);
    expect(active).toMatchObject({ status: 'active', status_reason: null, simulated: true });
    expect(active.ipv4_addresses).toEqual([spec.interfaces[0]!.address]);
    const [from, to] = [new Date(active.created_at), new Date(active.paid_until)];
    expect(Math.round((to.getTime() - from.getTime()) / 86_400_000)).toBeGreaterThanOrEqual(89);
    // What users give to their machines is not readable in a dump.
    const [row] = await bench.sql<{ user_data: Buffer }>('select user_data from vm where id = $1', [vm.id]);
    expect(row!.user_data.toString('latin1')).not.toContain('secret');
  });

  it('402 with nothing made when the balance does not suffice, 503 when it cannot be read', async () => {
    const before = await count();
    bench.billing.available = 239_999_999_999n;
    expect(await bench.create()).toMatchObject({
      status: 402,
      body: { error: { code: 'insufficient_balance' } },
    });
    bench.billing.away = true;
    expect(await bench.create()).toMatchObject({
      status: 503,
      body: { error: { code: 'billing_unavailable' } },
    });
    expect(await count()).toBe(before);
    expect(held()).toBe(0);
  });

  it('two orders at once on a balance for one: one machine, one charge', async () => {
    bench.billing.available = 250_000_000_000n;
    const answers = await Promise.all([bench.create(), bench.create()]);
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 402]);
  });

  it('409 name_taken without case, in this project only, also for two at once; the money of the loser is given back', async () => {
    const name = `Taken ${randomUUID()}`;
    await bench.vm({ name });
    expect(await bench.create({ name: name.toUpperCase() })).toMatchObject({
      status: 409,
      body: { error: { code: 'name_taken' } },
    });
    const elsewhere = `projects/${randomUUID()}/vms`;
    expect((await bench.api('POST', elsewhere, bench.order({ name }))).status).toBe(201);
    const same = `Race ${randomUUID()}`;
    const answers = await Promise.all([1, 2, 3].map(() => bench.create({ name: same })));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409, 409]);
    await eventually('no hold is left', async () => held() === 0);
  });

  it('a repeat with the same Idempotency-Key answers the same, also without money left; another body is 422', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const order = { name: `once ${randomUUID()}` };
    const first = await bench.create(order, headers);
    expect(first.status).toBe(201);
    bench.billing.available = 0n;
    expect(await bench.create(order, headers)).toMatchObject({ status: 201, body: first.body });
    expect((await bench.create({ name: 'other' }, headers)).body).toMatchObject({
      error: { code: 'idempotency_key_reused' },
    });
  });

  it.each([
    ['hostname', { hostname: 'Not A Host' }],
    ['hostname', { hostname: '-x' }],
    ['name', { name: ' ' }],
    ['name', { name: '' }],
    ['default_user', { default_user: 'root; rm' }],
    ['vcpu', { vcpu: 2 }],
    ['mem', { mem: 2048 }],
    ['mem', { mem: 64 }],
    ['disk_size_gb', { disk_size_gb: 51 }],
    ['disk_size_gb', { disk_size_gb: 0 }],
    ['backup_count', { backup_count: 11 }],
    ['period_months', { period_months: 2 }],
    ['period_days', { period_days: 3, period_months: 1 }],
    ['period_days', { period_days: 0 }],
    ['period_months', { ephemeral: true, period_months: 1 }],
    ['period_days', { ephemeral: true, period_days: 1 }],
    ['backup_count', { ephemeral: true, backup_count: 1 }],
    ['image_id', { image_id: 'none' }],
    ['cloud_init', { cloud_init: 'x'.repeat(65_537) }],
    ['name', { name: 'a\0b' }],
  ])('422 naming %s for %j', async (field, more) => {
    expect(await bench.create(more)).toMatchObject({
      status: 422,
      body: { detail: [{ loc: ['body', field] }] },
    });
  });

  it('404 naming the field for what is not there or another account’s, 403 for what the key may not see', async () => {
    const foreign = (
      await bench.api('POST', 'ssh-keys', { name: 'f', public_key: publicKey() }, bench.stranger)
    ).body;
    const vpc = randomUUID();
    bench.networking.owners.set(vpc, bench.stranger.account_id);
    const cases = [
      ['cluster_id', { cluster_id: randomUUID() }],
      ['image_id', { image_id: randomUUID() }],
      ['vm_plan_id', { vm_plan_id: randomUUID() }],
      ['ssh_key_ids', { ssh_key_ids: [foreign.id] }],
      ['ssh_key_ids', { ssh_key_ids: ['x'] }],
      ['interfaces.vpc_id', { interfaces: [{ type: 'vpc', vpc_id: vpc }] }],
      ['interfaces.vpc_id', { interfaces: [{ type: 'vpc', vpc_id: randomUUID() }] }],
    ] as const;
    for (const [field, more] of cases)
      expect(await bench.create(more)).toMatchObject({
        status: 404,
        body: { error: { code: 'not_found', message: `${field}: not found` } },
      });
    const own = (await bench.api('POST', 'ssh-keys', { name: 'o', public_key: publicKey() })).body;
    bench.networking.owners.set(vpc, bench.account);
    const blind = keyOf(bench.account, {
      policy: [{ effect: 'allow', actions: ['vm:*'], resources: ['*'] }],
    });
    for (const more of [{ ssh_key_ids: [own.id] }, { interfaces: [{ type: 'vpc', vpc_id: vpc }] }])
      expect(
        await bench.api('POST', `projects/${bench.project}/vms`, bench.order(more), blind),
      ).toMatchObject({
        status: 403,
        body: { error: { code: 'forbidden', message: expect.stringMatching(/ssh_key:read|vpc:read/) } },
      });
    const vm = await bench.vm({ interfaces: [{ type: 'vpc', vpc_id: vpc }, { type: 'vpc' }] });
    const { spec } = await agent.see(vm.id);
    expect(spec.interfaces.map(({ vpc_id }) => vpc_id)).toEqual([vpc, bench.networking.vpc]);
  });

  it('400 vpc_region_mismatch for a network of another region: nothing is made or charged', async () => {
    const vpc = randomUUID();
    bench.networking.owners.set(vpc, bench.account);
    bench.networking.regions.set(vpc, randomUUID());
    const before = bench.billing.reservations.size;
    const answer = await bench.create({ interfaces: [{ type: 'vpc', vpc_id: vpc }] });
    expect(answer).toMatchObject({ status: 400, body: { error: { code: 'vpc_region_mismatch' } } });
    expect(bench.billing.reservations.size).toBe(before);
    bench.networking.regions.set(vpc, bench.region);
    expect((await bench.create({ interfaces: [{ type: 'vpc', vpc_id: vpc }] })).status).toBe(201);
  });

  it('400 for interfaces that are not offered, 409 while the project is being deleted, 401 without a key', async () => {
    expect(await bench.create({ interfaces: [{ type: 'public' }] })).toMatchObject({
      status: 400,
      body: { error: { code: 'interface_not_offered' } },
    });
    bench.billing.project = { status: 409, body: { error: { code: 'project_busy', message: 'busy' } } };
    expect(await bench.create()).toMatchObject({ status: 409, body: { error: { code: 'project_busy' } } });
    await eventually('no hold is left', async () => held() === 0);
    expect((await bench.api('POST', `projects/${bench.project}/vms`, bench.order(), null)).status).toBe(401);
  });

  it('a price that has changed since it was read is read again; one that never stands still is 503 with nothing made', async () => {
    await bench.vm();
    bench.billing.version += 1;
    bench.billing.prices['vm.nano.month'] = 300_000_000_000n;
    const vm = await bench.vm({ period_months: 1 });
    await eventually('it is charged', async () => bench.billing.charged(vm.id) === 300_000_000_000n);
    const before = await count();
    const moving = Object.getOwnPropertyDescriptor(bench.billing, 'version')!;
    let version = 100;
    Object.defineProperty(bench.billing, 'version', { get: () => (version += 1), configurable: true });
    expect(await bench.create()).toMatchObject({
      status: 503,
      body: { error: { code: 'billing_unavailable' } },
    });
    Object.defineProperty(bench.billing, 'version', { ...moving, value: 8 });
    bench.billing.prices['vm.nano.month'] = prices['vm.nano.month']!;
    expect(await count()).toBe(before);
    expect(held()).toBe(0);
  });

  it('an order asks for its project again when its machines were just counted, until the project is known to stay', async () => {
    bench.billing.project = { status: 200, body: {} };
    const project = randomUUID();
    const path = `projects/${project}/vms`;
    const asked = () =>
      bench.billing.target.calls.filter(({ path: one }) => one.includes(`owners/project/${project}`));
    expect((await bench.api('POST', path, bench.order())).status).toBe(201);
    expect(asked()).toHaveLength(0);
    await bench.internal('GET', `projects/${project}/usage`);
    // Meanwhile it is gone: what the reservation was told before does not count.
    bench.billing.ownerOnly = { status: 404, body: { error: { code: 'not_found', message: 'not found' } } };
    expect((await bench.api('POST', path, bench.order())).status).toBe(404);
    await eventually('no hold is left', async () => held() === 0);
    bench.billing.ownerOnly = null;
    expect((await bench.api('POST', path, bench.order())).status).toBe(201);
    expect(asked()).toHaveLength(2);
    expect((await bench.api('POST', path, bench.order())).status).toBe(201);
    expect(asked()).toHaveLength(2);
  });

  it('a project says how many machines would be lost with it', async () => {
    const project = randomUUID();
    expect((await bench.internal('GET', `projects/${project}/usage`)).body).toEqual({ count: 0 });
    await bench.api('POST', `projects/${project}/vms`, bench.order());
    expect((await bench.internal('GET', `projects/${project}/usage`)).body).toEqual({ count: 1 });
  });
});
