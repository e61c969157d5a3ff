import { type AccountStanding } from '@nebo/contracts';
import { keyOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { randomUUID } from 'node:crypto';
import { AddressKit } from '../../test/address-kit.js';
import { Bench, FakeAgent } from '../../test/harness.js';
import { StandingService } from './standing.service.js';

describe('addresses of accounts without money', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let kit: AddressKit;
  beforeAll(async () => {
    bench = await Bench.start({ NEBO_STANDING_SECONDS: '3600' });
    agent = new FakeAgent(bench);
    kit = new AddressKit(bench, agent);
  });
  beforeEach(() => kit.renew());
  afterEach(() => {
    bench.billing.standing = [];
    bench.billing.away = false;
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const compare = () =>
    bench.nebo.services.get('networking')!.app.get<StandingService>(StandingService).compare();
  const says = (state: AccountStanding['state'], account_id = bench.account) => {
    bench.billing.standing = [{ account_id, state, since: new Date().toISOString() }];
  };
  const status = async (id: string, as = bench.key) =>
    (await bench.api('GET', `floating-ips/${id}`, undefined, as)).status;

  it('empty and suspended ones keep everything; billing that is away changes nothing', async () => {
    const fip = await bench.address();
    for (const state of ['empty', 'suspended'] as const) {
      says(state);
      await compare();
    }
    says('forfeited');
    bench.billing.away = true;
    await expect(compare()).rejects.toThrow();
    expect(await status(fip.id)).toBe(200);
    expect(await kit.held(fip.id)).toBe(true);
  });

  it('forfeited: free ones are released and cost nothing more, two replicas at once do it once; others keep theirs', async () => {
    const fip = await bench.address();
    const other = keyOf(randomUUID());
    const theirs = (await bench.api('POST', 'floating-ips', { cluster_id: fip.cluster_id }, other)).body;
    says('forfeited');
    await Promise.all([compare(), compare()]);
    expect(await status(fip.id)).toBe(404);
    expect(await kit.held(fip.id)).toBe(false);
    const rows = await bench.sql('select 1 from span where fip_id = $1 and ended_at is null', [fip.id]);
    expect(rows).toEqual([]);
    expect(await status(theirs.id, other)).toBe(200);
  });

  it('one on a machine stays until the machine is gone; a gateway is disabled with its address', async () => {
    const { fip, port } = await kit.attached();
    const made = await bench.api('POST', `vpcs/${kit.vpc.id}/nat-gateway`);
    expect(made.status).toBe(201);
    says('forfeited');
    await compare();
    expect((await kit.get(fip.id)).vm_interface_id).toBe(port.id);
    const { nat_gateway } = (await bench.api('GET', `vpcs/${kit.vpc.id}`)).body;
    expect(nat_gateway).toMatchObject({ enabled: false, status: 'detaching' });
    const spans = await bench.sql('select 1 from span where fip_id = $1 and ended_at is null', [
      made.body.fip_id,
    ]);
    expect(spans).toEqual([]);
    await kit.freePort(port.id);
    await compare();
    expect(await status(fip.id)).toBe(404);
    // The region may still have it.
    expect(await kit.held(fip.id)).toBe(true);
    const before = await bench.sql('select id, generation from vpc order by id');
    await compare();
    expect(await bench.sql('select id, generation from vpc order by id')).toEqual(before);
  });
});
