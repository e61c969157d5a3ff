import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, otherRegion, region } from '../../test/harness.js';

let bench: Bench;
beforeAll(async () => {
  bench = await Bench.start();
});
afterAll(async () => {
  await bench?.close();
  await (await sharedPostgres()).stop();
});

const add = (range: unknown, to: unknown = otherRegion) =>
  bench.internal('POST', 'operator/pools', { region: to, range });
const list = async () => (await bench.internal('GET', 'operator/pools')).body;
const order = (cluster_id: string) => bench.api('POST', 'floating-ips', { cluster_id });

describe('the operator’s pools', () => {
  it('the default region has its range from the start; one that is added gives addresses until none is left', async () => {
    const builtIn = { region_id: region, range: '203.0.113.0/24', total: 256, held: 0, free: 256 };
    expect(await list()).toEqual([builtIn]);
    expect(await order(otherRegion)).toMatchObject({ status: 503, body: { error: { code: 'no_capacity' } } });
    const added = { region_id: otherRegion, range: '198.51.100.8/30', total: 4, held: 0, free: 4 };
    expect(await add('198.51.100.8/30')).toMatchObject({ status: 201, body: added });
    const answers = await Promise.all(Array.from({ length: 5 }, () => order(otherRegion)));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 201, 201, 201, 503]);
    expect(await list()).toEqual([builtIn, { ...added, held: 4, free: 0 }]);
    expect((await add('198.51.100.12/32')).body).toMatchObject({ total: 1 });
    expect((await order(otherRegion)).body.address).toBe('198.51.100.12');
  });

  it('409 for a range that overlaps with one of any region, also when two are added at once', async () => {
    for (const [range, to] of [
      ['198.51.100.8/29', otherRegion],
      ['198.51.100.9/32', region],
      ['203.0.113.128/25', otherRegion],
    ])
      expect(await add(range, to)).toMatchObject({
        status: 409,
        body: { error: { code: 'range_overlaps' } },
      });
    const both = await Promise.all([add('192.0.2.0/28'), add('192.0.2.0/29')]);
    expect(both.map(({ status }) => status).sort()).toEqual([201, 409]);
  });

  it('422 for what is no usable range, 404 for an unknown region', async () => {
    const bad = ['banana', '198.51.100.1/24', '10.0.0.0/8', '127.0.0.0/24', '240.0.0.0/24', '0.0.0.0/16', 7];
    for (const range of bad)
      expect(await add(range)).toMatchObject({ status: 422, body: { error: { code: 'validation_error' } } });
    expect((await add('192.0.2.128/28', 'x')).status).toBe(422);
    expect((await add('192.0.2.128/28', randomUUID())).status).toBe(404);
    const asKey = { method: 'POST', path: '/internal/v1/operator/pools', as: bench.key, body: {} };
    expect((await bench.nebo.request('networking', asKey)).status).toBe(401);
  });

  it('with a range of the operator’s own nobody is given an address for documentation any more', async () => {
    expect((await order(region)).body.address).toMatch(/^203\.0\.113\./);
    await add('198.18.0.0/31', region);
    const given = await Promise.all([order(region), order(region), order(region)]);
    const addresses = given.map(({ status, body }) => (status === 201 ? body.address : status));
    expect(addresses.map(String).sort()).toEqual(['198.18.0.0', '198.18.0.1', '503']);
  });
});
