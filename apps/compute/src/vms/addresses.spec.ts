import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';

const [month, address] = [240_000_000_000n, 180_000_000_000n];

describe('addresses of machines', () => {
  let bench: Bench;
  let agent: FakeAgent;
  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  afterEach(() => {
    Object.assign(bench.billing, { available: 10n ** 15n, spansAway: false });
    Object.assign(bench.networking, { away: false, refuseAddresses: null, canPay: () => true });
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const interfaces = [{ type: 'vpc', floating_ip: true }];
  const read = async (id: string) => (await bench.api('GET', `vms/${id}`)).body;
  const orders = (id: string) =>
    bench.networking.target.calls.filter(
      ({ path, body }) =>
        path.endsWith('/floating-ips/order') && (body as { operation_id: string }).operation_id === id,
    );

  it('402 when the month of the floating IP is not there as well, before anything is made', async () => {
    bench.billing.available = month + address - 1n;
    expect(await bench.create({ interfaces })).toMatchObject({
      status: 402,
      body: { error: { code: 'insufficient_balance' } },
    });
    bench.billing.available = month + address;
    const { id } = await bench.vm({ interfaces });
    await agent.run(id);
    // Only the period is charged here; networking charges its address.
    expect(bench.billing.charged(id)).toBe(month);
    expect(bench.billing.available).toBe(address);
    bench.billing.available = 400_000_000n + address - 1n;
    expect((await bench.create({ interfaces, ephemeral: true })).status).toBe(402);
  });

  it('an ephemeral machine with exactly the money that it needs gets its floating IP, although its span is late', async () => {
    const needed = 400_000_000n + address;
    Object.assign(bench.billing, { available: needed, spansAway: true });
    bench.networking.canPay = () => bench.billing.available >= address;
    const { id } = await bench.vm({ interfaces, ephemeral: true });
    expect((await agent.run(id)).floating_ips).toHaveLength(1);
    expect(bench.billing.available).toBe(needed);
  });

  it('an interface with its own floating IP: ordered for the claimed port, shown with its status, gone with the machine', async () => {
    const { id } = await bench.vm({ interfaces: [{ type: 'vpc' }, ...interfaces] });
    const vm = await agent.run(id);
    const [first, second] = vm.interfaces;
    const port = bench.networking.ports.get(second.id)!;
    expect(vm.floating_ips).toEqual([port.floating_ip]);
    expect(orders(port.floating_ip!.id)[0]!.body).toEqual({
      operation_id: port.floating_ip!.id,
      account_id: bench.account,
      port_id: second.id,
      project_id: bench.project,
    });
    port.floating_ip = { ...port.floating_ip!, status: 'attached' };
    expect((await read(id)).floating_ips).toEqual([port.floating_ip]);
    // One that was ordered for itself and attached later counts as well; one that was detached does not.
    bench.networking.ports.get(first.id)!.floating_ip = port.floating_ip;
    port.floating_ip = null;
    expect((await read(id)).floating_ips).toMatchObject([{ status: 'attached' }]);
    await bench.api('DELETE', `vms/${id}`);
    await agent.observe(await agent.see(id, 2), 'gone');
    await eventually('released', async () => (await bench.remains(id)).ports === 0);
  });

  it('networking has none left, or the money is gone meanwhile: error with the reason, the money back, nothing kept', async () => {
    for (const refusal of [
      [503, 'no_capacity'],
      [402, 'insufficient_balance'],
    ] as const) {
      bench.networking.refuseAddresses = [...refusal];
      const { id } = await bench.vm({ interfaces });
      expect((await bench.reach(id, 'error')).status_reason).toContain(refusal[1]);
      await eventually('paid back', () => Promise.resolve(bench.billing.charged(id) === 0n));
      await eventually('no port left', async () => (await bench.remains(id)).ports === 0);
      expect(await read(id)).toMatchObject({ interfaces: [], floating_ips: [] });
      expect((await bench.api('DELETE', `vms/${id}`)).body).toEqual({ status: 'deleted' });
    }
  });

  it('billing that is away while the floating IP is ordered delays the machine', async () => {
    bench.networking.refuseAddresses = [503, 'billing_unavailable'];
    const { id } = await bench.vm({ interfaces });
    await eventually('asked', async () => {
      const [row] = await bench.sql<{ fip_id: string }>('select fip_id from vm_interface where vm_id = $1', [
        id,
      ]);
      return orders(row!.fip_id).length > 0;
    });
    bench.networking.refuseAddresses = null;
    expect((await agent.run(id)).floating_ips).toHaveLength(1);
  });

  it('an address that was reserved meanwhile is shown; one call for a page; networking that is away breaks no reading', async () => {
    const made = [
      await agent.run((await bench.vm()).id),
      await agent.run((await bench.vm({ interfaces })).id),
    ];
    const port = bench.networking.ports.get(made[0].interfaces[0].id)!;
    const before = port.address;
    port.address = '10.16.0.200';
    expect(await read(made[0].id)).toMatchObject({
      ipv4_addresses: ['10.16.0.200'],
      interfaces: [{ ipv4_addresses: ['10.16.0.200'] }],
    });
    const { reads } = bench.networking;
    const listed = (await bench.api('GET', 'vms?limit=200')).body.data;
    expect(bench.networking.reads).toBe(reads + 1);
    expect(listed.find(({ id }: { id: string }) => id === made[0].id).ipv4_addresses).toEqual([
      '10.16.0.200',
    ]);
    bench.networking.away = true;
    expect(await read(made[0].id)).toMatchObject({ status: 'active', ipv4_addresses: [before] });
    expect(await read(made[1].id)).toMatchObject({ floating_ips: [{ id: expect.any(String) }] });
    expect((await bench.api('GET', 'vms?limit=200')).body.data).toHaveLength(listed.length);
  });
});
