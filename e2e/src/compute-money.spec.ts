import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseRubles } from '@nebo/contracts';
import { nothingLost } from '../harness/audit.js';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { Nebo, until } from '../harness/nebo.js';

const contract = new ContractCheck(readContract('v1'));

/** What machines cost, from the public door to the ledger: sizes, seconds, an account without money. */
describe('money of machines', () => {
  let nebo: Nebo;
  let api: Api;
  let order: Record<string, unknown>;
  let plans: { id: string; name: string; monthly_price: string; hourly_price: string }[];
  beforeAll(async () => {
    nebo = await Nebo.start({
      NEBO_DRIVERS: 'machines=simulated,networks=simulated',
      NEBO_GRACE_HOURS: '0',
      NEBO_STANDING_SECONDS: '1',
    });
    api = new Api(nebo.credentials.base_url, nebo.credentials.accounts[0]!.api_key, contract);
    const [region] = (await api.get('/regions')).body.data;
    plans = (await api.get('/vm-plans')).body.data;
    const project = nebo.credentials.accounts[0]!.project_id;
    const { images } = (await api.get(`/projects/${project}/images?cluster_id=${region.id}`)).body;
    order = {
      hostname: 'web',
      image_id: images[0].id,
      vm_plan_id: plans.find(({ name }) => name === 'nano')!.id,
      cluster_id: region.id,
      default_user: 'me',
    };
  });
  afterAll(() => nebo?.dispose());

  /** An account of its own, so that balances are its own. */
  const customer = async (name: string, rubles: string) => {
    const { account_id } = await nebo.admin('account', 'create', '--name', name, '--topup', rubles);
    const { key } = await nebo.admin('key', 'create', '--account', account_id);
    const own = api.as(key);
    const project = (await own.get('/projects')).body.data[0].id as string;
    return {
      api: own,
      account: account_id as string,
      vm: (body: object) => own.post(`/projects/${project}/vms`, { ...order, name: 'm', ...body }),
      balance: async () => parseRubles((await own.get('/account/balance')).body.balance),
      reach: async (id: string, status: string) => {
        const { body } = await own.get(`/vms/${id}?wait=${status}&timeout=30`);
        expect(body).toMatchObject({ status });
        return body;
      },
      gone: (id: string) => until(async () => (await own.get(`/vms/${id}`)).status === 404, 30_000),
    };
  };

  it('the region’s agent says what it can hold, and the operator reads it; a session with nonsense takes no region', async () => {
    const region = async () => (await nebo.admin('region', 'list')).data[0];
    expect(await region()).toMatchObject({
      capacity: { vcpu: expect.any(Number), memory_mb: expect.any(Number), disk_gb: expect.any(Number) },
      used: { vcpu: 0, memory_mb: 0, disk_gb: 0 },
      machines: 0,
      queued: 0,
    });
    const token = readFileSync(join(nebo.home, 'region.token'), 'utf8').trim();
    const session = async (bearer: string, body: string) =>
      (
        await fetch(`${new URL(nebo.credentials.base_url).origin}/agent/v1/session`, {
          method: 'POST',
          headers: { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' },
          body,
        })
      ).status;
    expect(await session('nebo_region_unknown', '{}')).toBe(401);
    for (const [body, status] of [
      ['{"capacity":', 400],
      ['7', 400],
      ['{"capacity":{"vcpu":"many"}}', 422],
      [JSON.stringify({ capacity: null, more: 'x'.repeat(20_000) }), 413],
    ] as const)
      expect(await session(token, body)).toBe(status);
    expect((await region()).capacity).not.toBeNull();
  });

  it('a larger machine: paid for the rest of the period, its disk at once, its processors at the next start', async () => {
    const my = await customer('growing', '10000');
    const { id } = (await my.vm({ period_months: 1 })).body;
    await my.reach(id, 'active');
    const before = await my.balance();
    const small = plans.find(({ name }) => name === 'small')!;
    const answer = await my.api.patch(`/vms/${id}`, { vm_plan_id: small.id, disk_size_gb: 25 });
    expect(answer).toMatchObject({
      status: 200,
      body: { vcpu: 2, mem: 2048, disk_size: 25, vm_plan_id: small.id },
    });
    // Nearly the whole month is left.
    const whole = parseRubles('690') - parseRubles('240') + 5n * parseRubles('9');
    const charged = before - (await my.balance());
    expect(charged).toBeLessThanOrEqual(whole);
    expect(charged).toBeGreaterThan((whole * 999n) / 1_000n);
    await until(
      async () => /until its next start/.test((await my.api.get(`/vms/${id}`)).body.status_reason ?? ''),
      30_000,
    );
    await my.api.post(`/vms/${id}/restart`);
    await until(async () => {
      const { body } = await my.api.get(`/vms/${id}?wait=active&timeout=30`);
      return body.status === 'active' && body.status_reason === null;
    }, 30_000);
    expect(await my.api.patch(`/vms/${id}`, { disk_size_gb: 24 })).toMatchObject({ status: 422 });
    expect((await my.api.delete(`/vms/${id}`)).status).toBe(202);
    await my.gone(id);
  });

  /** What an ephemeral nano with 10 GB of extra disk costs, milliseconds; the disk's price is a month's. */
  const costOf = (ms: number) => {
    const hourly = parseRubles(plans.find(({ name }) => name === 'nano')!.hourly_price);
    const now = new Date();
    const days = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 0)).getUTCDate();
    return (BigInt(ms) * (hourly + (10n * parseRubles('9')) / BigInt(24 * days))) / 3_600_000n;
  };
  /** Exactly the time from the creation to the deletion, to a hundredth. */
  const expectTime = async (
    charged: () => Promise<bigint>,
    created: string,
    asked: number,
    answered: number,
  ) => {
    const from = Date.parse(created);
    await until(async () => (await charged()) > (costOf(asked - from) * 99n) / 100n - 1_000n, 30_000);
    expect(await charged()).toBeLessThan((costOf(answered - from) * 101n) / 100n + 1_000n);
  };

  it('an ephemeral machine costs its seconds: from the creation until the deletion is asked for', async () => {
    const my = await customer('runner', '1000');
    const before = await my.balance();
    const { id, created_at } = (await my.vm({ ephemeral: true, disk_size_gb: 20 })).body;
    expect(await my.reach(id, 'active')).toMatchObject({ ephemeral: true, paid_until: null });
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    const [asked, answer] = [Date.now(), await my.api.delete(`/vms/${id}`)];
    expect(answer).toMatchObject({ status: 202 });
    const answered = Date.now();
    await my.gone(id);
    await expectTime(async () => before - (await my.balance()), created_at, asked, answered);
  });

  it('killed right after the order and right after the deletion, it costs the same', async () => {
    const my = await customer('unlucky', '1000');
    const before = await my.balance();
    const { id, created_at } = (await my.vm({ ephemeral: true, disk_size_gb: 20 })).body;
    await nebo.down('SIGKILL');
    await nebo.up();
    await my.reach(id, 'active');
    const [asked, answer] = [Date.now(), await my.api.delete(`/vms/${id}`)];
    expect(answer).toMatchObject({ status: 202 });
    const answered = Date.now();
    await nebo.down('SIGKILL');
    await nebo.up();
    await my.gone(id);
    const charged = async () => before - (await my.balance());
    await expectTime(charged, created_at, asked, answered);
    const once = await charged();
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    expect(await charged()).toBe(once);
  });

  it('an interface with its own floating IP: ordered, attached and charged with the machine, released with it', async () => {
    const my = await customer('reachable', '419');
    const interfaces = [{ type: 'vpc', floating_ip: true }];
    // A machine's month and an address's are 420.
    expect(await my.vm({ interfaces })).toMatchObject({
      status: 402,
      body: { error: { code: 'insufficient_balance' } },
    });
    expect((await my.api.get('/floating-ips')).body.total).toBe(0);
    await nebo.admin('account', 'topup', '--account', my.account, '--amount', '1');
    const { id } = (await my.vm({ interfaces })).body;
    await my.reach(id, 'active');
    await until(async () => {
      const [address] = (await my.api.get(`/vms/${id}`)).body.floating_ips;
      return address?.status === 'attached';
    }, 30_000);
    const [shown] = (await my.api.get('/vms')).body.data[0].floating_ips;
    const [listed] = (await my.api.get('/floating-ips')).body.data;
    expect(listed).toMatchObject({ id: shown.id, address: shown.address, status: 'attached' });
    expect((await my.api.delete(`/vms/${id}`)).status).toBe(202);
    await my.gone(id);
    await until(async () => (await my.api.get('/floating-ips')).body.total === 0, 30_000);
  });

  it('without money: ephemeral machines end, the others stop and refuse to start; a top-up starts those that ran', async () => {
    // Ten rubles a second, and an order that takes what is left.
    const price = (id: string, unit: string) =>
      nebo.admin('price', 'set', '--id', id, '--amount', '36000', '--unit', unit);
    await Promise.all([price('vm.nano.hour', 'hour'), price('vm.medium.month', 'month')]);
    const my = await customer('spender', '36245');
    const prepaid = (await my.vm({ name: 'prepaid', auto_renew: false })).body.id as string;
    expect((await my.vm({ name: 'second' })).status).toBe(201);
    await my.reach(prepaid, 'active');
    expect(await my.vm({ name: 'brief', ephemeral: true })).toMatchObject({
      status: 402,
      body: { error: { code: 'insufficient_balance' } },
    });
    await nebo.admin('account', 'topup', '--account', my.account, '--amount', '240');
    const brief = (await my.vm({ name: 'brief', ephemeral: true })).body.id as string;
    const medium = plans.find(({ name }) => name === 'medium')!.id;
    // Once the hold of its first hour is given back.
    await until(async () => (await my.vm({ name: 'rest', vm_plan_id: medium })).status === 201, 30_000);
    await my.gone(brief);
    const stopped = await my.reach(prepaid, 'stopped');
    expect(stopped.status_reason).toMatch(/balance is used up/);
    expect(await my.api.post(`/vms/${prepaid}/start`)).toMatchObject({
      status: 402,
      body: { error: { code: 'account_suspended' } },
    });
    // Only the span has gone below zero; everything is kept, and reading works.
    await until(async () => (await my.balance()) < 0n, 30_000);
    expect((await my.api.get('/vms')).body.total).toBe(3);
    await nebo.admin('account', 'topup', '--account', my.account, '--amount', '1000');
    expect((await my.reach(prepaid, 'active')).status_reason).toBeNull();
    for (const { id } of (await my.api.get('/vms')).body.data) {
      expect((await my.api.delete(`/vms/${id}`)).status).toBe(202);
      await my.gone(id);
    }
  });

  it('nothing is lost or left over, says the audit', () => nothingLost(nebo), 90_000);
});
