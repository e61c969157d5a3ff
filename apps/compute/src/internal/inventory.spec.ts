import type { Inventory, InventoryItem, ServiceIdentity } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';

describe('the inventory', () => {
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

  const ask = (query = '', account: string | null = null) => {
    const as: ServiceIdentity = { kind: 'service', service: 'audit', account_id: account };
    return bench.nebo.request('compute', { path: `/internal/v1/inventory${query}`, as });
  };
  const all = async (): Promise<InventoryItem[]> => {
    const { status, body, text } = await ask();
    if (status !== 200) throw new Error(text);
    return (body as Inventory).items;
  };
  const find = (items: InventoryItem[], kind: string, id: string) =>
    items.find((item) => item.kind === kind && item.id === id);

  it('has machines with their ports and reservations, backups, images and blobs, each with what it names', async () => {
    const vm = (await agent.run((await bench.vm({ backup_count: 1 })).id)).id as string;
    const { id } = (await bench.api('POST', `vms/${vm}/backups`, { name: 'b' })).body;
    const blob = await agent.back(id);
    await bench.api('GET', `vms/${vm}/backups/${id}?wait=ready&timeout=30`);
    const orphan = await agent.put(Buffer.from('nobody’s'));
    const items = await all();
    const [port] = (await bench.api('GET', `vms/${vm}`)).body.interfaces;
    expect(find(items, 'vm', vm)).toMatchObject({
      account_id: bench.account,
      state: 'living',
      refers: expect.arrayContaining([
        `region:${bench.region}`,
        `image:${bench.image}`,
        `reservation:${vm}`,
        `port:${port.id}`,
      ]),
    });
    expect(find(items, 'backup', id)).toEqual({
      kind: 'backup',
      id,
      account_id: bench.account,
      state: 'ready',
      refers: [`vm:${vm}`, `blob:${blob.sha256}`],
    });
    expect(find(items, 'image', bench.image)).toMatchObject({
      account_id: null,
      refers: [],
      state: 'offered',
    });
    expect(find(items, 'blob', blob.sha256)).toMatchObject({ refers: [`backup:${id}`], state: 'owned' });
    expect(find(items, 'blob', orphan.sha256)).toMatchObject({ refers: [], state: 'unowned' });

    await bench.api('POST', `vms/${vm}/backups/${id}/restore`, { target: 'vm' });
    expect(find(await all(), 'vm', vm)!.refers).toContain(`blob:${blob.sha256}`);
    await bench.api('DELETE', `vms/${vm}`);
    expect(find(await all(), 'vm', vm)!.state).toBe('deleting');
    expect(find(await all(), 'backup', id)).toBe(undefined);
    await agent.observe(await agent.see(vm, 3), 'gone');
    await eventually('gone', async () => find(await all(), 'vm', vm) === undefined);
  });

  it('goes on after an item; 422 for what is none, 403 for a service that acts for one account, 401 for a key', async () => {
    const items = await all();
    const { kind, id } = items[0]!;
    expect(((await ask(`?after=${kind}:${id}`)).body as Inventory).items).toEqual(items.slice(1));
    expect((await ask('?after=x')).status).toBe(422);
    expect((await ask('', bench.account)).status).toBe(403);
    const asKey = await bench.nebo.request('compute', { path: '/internal/v1/inventory', as: bench.key });
    expect(asKey.status).toBe(401);
  });
});
