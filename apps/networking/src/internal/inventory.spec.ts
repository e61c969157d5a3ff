import { randomUUID } from 'node:crypto';
import type { Inventory, InventoryItem, PortInfo, ServiceIdentity, V1NatGateway } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent, region } from '../../test/harness.js';

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

const inventory = async (): Promise<InventoryItem[]> => {
  const items: InventoryItem[] = [];
  for (let after: string | null = ''; after !== null;) {
    const page: Inventory = (await bench.internal('GET', `inventory${after && `?after=${after}`}`)).body;
    items.push(...page.items);
    after = page.next;
  }
  return items;
};

/** What refers to something of this service that is not there. */
const dangling = (items: InventoryItem[]): string[] => {
  const known = new Set(items.map(({ kind, id }) => `${kind}:${id}`));
  return items.flatMap(({ kind, id, refers }) =>
    refers
      .filter((target) => !/^(region|vm|app):/.test(target) && !known.has(target))
      .map((target) => `${kind}:${id} → ${target}`),
  );
};

describe('GET /internal/v1/inventory', () => {
  it('says all that there is, of all accounts, and what names what', async () => {
    const account_id = bench.account;
    const vpc = await bench.activeVpc(agent);
    const port = (await bench.claim({ vpc_id: vpc.id })).body as PortInfo;
    const fip = await bench.address();
    await bench.api('POST', `floating-ips/${fip.id}/attach`, { vm_interface_id: port.id });
    const nat = (await bench.api('POST', `vpcs/${vpc.id}/nat-gateway`)).body as V1NatGateway;
    const mac = port.mac;
    const reserved = (
      await bench.api('POST', `vpcs/${vpc.id}/reserved-ips`, { name: 'db', address: port.address, mac })
    ).body;
    const theirs = await bench.vpc({}, bench.stranger);
    const items = await inventory();
    const of = (kind: string, id: string) => items.find((item) => item.kind === kind && item.id === id);
    expect(of('vpc', vpc.id)).toEqual({
      kind: 'vpc',
      id: vpc.id,
      account_id,
      refers: [`region:${region}`],
      state: 'active',
    });
    expect(of('vpc', theirs.id)).toMatchObject({ account_id: bench.stranger.account_id, state: 'pending' });
    expect(of('port', port.id)!.refers).toEqual([`vpc:${vpc.id}`, port.owner]);
    expect(of('reserved_ip', reserved.id)!.refers).toEqual([`vpc:${vpc.id}`, `port:${port.id}`]);
    const gateway = items.find(({ kind }) => kind === 'nat_gateway')!;
    expect(gateway.refers).toEqual([`vpc:${vpc.id}`, `port:${gateway.id}`, `floating_ip:${nat.fip_id}`]);
    const span = items.find(({ kind, refers }) => kind === 'span' && refers[0] === `floating_ip:${fip.id}`)!;
    expect(span.state).toBe('open');
    expect(of('floating_ip', fip.id)).toEqual({
      kind: 'floating_ip',
      id: fip.id,
      account_id,
      refers: [
        `pool_address:${region}/${fip.address}`,
        `span:${span.id}`,
        `vpc:${vpc.id}`,
        `port:${port.id}`,
      ],
      state: 'attaching',
    });
    expect(of('pool_address', `${region}/${fip.address}`)).toEqual({
      kind: 'pool_address',
      id: `${region}/${fip.address}`,
      account_id: null,
      refers: [`floating_ip:${fip.id}`],
      state: 'held',
    });
    expect(dangling(items)).toEqual([]);
  });

  it('is empty of what is gone, and says what is on its way out', async () => {
    const account = randomUUID();
    const as = { ...bench.key, account_id: account };
    const vpc = await bench.activeVpc(agent, {}, as);
    const port = (await bench.claim({ vpc_id: vpc.id, account_id: account })).body as PortInfo;
    const fip = await bench.address({}, as);
    await bench.api('POST', `floating-ips/${fip.id}/attach`, { vm_interface_id: port.id }, as);
    await bench.api('POST', `floating-ips/${fip.id}/detach`, undefined, as);
    await bench.api('DELETE', `floating-ips/${fip.id}`, undefined, as);
    await bench.internal('POST', 'ports/release', { operation_id: port.id, account_id: account });
    await bench.api('DELETE', `vpcs/${vpc.id}`, undefined, as);
    const ofAccount = (items: Inventory['items']) => items.filter(({ account_id }) => account_id === account);
    const mine = async () => {
      const items = await inventory();
      expect(dangling(items)).toEqual([]);
      return ofAccount(items);
    };
    expect((await mine()).find(({ kind }) => kind === 'floating_ip')).toMatchObject({ state: 'releasing' });
    expect((await mine()).find(({ kind }) => kind === 'vpc')).toMatchObject({ state: 'deleting' });
    await agent.answer(vpc.id, 'gone');
    // The address hears of the end of its network a moment after it; an audit waits for what is on its way.
    await eventually('nothing is left', async () => ofAccount(await inventory()).length === 0);
    expect(await mine()).toEqual([]);
    expect((await inventory()).some(({ refers }) => refers.includes(`floating_ip:${fip.id}`))).toBe(false);
  });

  it('comes in pages that leave nothing out', async () => {
    await bench.sql(
      `insert into pool_address (region_id, address, held_by)
       select $1::uuid, '10.0.0.0'::inet + number, gen_random_uuid() from generate_series(1, 6000) number`,
      [randomUUID()],
    );
    const first: Inventory = (await bench.internal('GET', 'inventory')).body;
    expect([first.items.length, typeof first.next]).toEqual([5_000, 'string']);
    const items = await inventory();
    expect(new Set(items.map(({ kind, id }) => `${kind}:${id}`)).size).toBe(items.length);
    expect(items.filter(({ kind }) => kind === 'pool_address').length).toBeGreaterThanOrEqual(6_000);
    await bench.sql("delete from pool_address where address << '10.0.0.0/8'");
  });

  it('403 for who acts for one account, 401 for a key, 422 for an after that is none', async () => {
    const path = '/internal/v1/inventory';
    const one: ServiceIdentity = { kind: 'service', service: 'compute', account_id: bench.account };
    expect((await bench.nebo.request('networking', { path, as: one })).status).toBe(403);
    expect((await bench.nebo.request('networking', { path, as: bench.key })).status).toBe(401);
    expect((await bench.internal('GET', 'inventory?after=x')).status).toBe(422);
  });
});
