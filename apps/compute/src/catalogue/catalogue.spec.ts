import { randomUUID } from 'node:crypto';
import { keyOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench } from '../../test/harness.js';
import { periodEnd, shareOfDays } from './prices.js';

describe('what can be ordered', () => {
  let bench: Bench;
  beforeAll(async () => {
    bench = await Bench.start();
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('from the first start there is a region, three plans and a tiny image, each once', async () => {
    expect((await bench.api('GET', 'regions')).body).toMatchObject({
      total: 1,
      data: [{ id: bench.region, name: 'local', is_default: true, floating_ip_monthly_price: '180.00' }],
    });
    expect(
      (await bench.internal('GET', 'operator/plans')).body.map(({ name }: { name: string }) => name),
    ).toEqual(['nano', 'small', 'medium']);
    expect((await bench.internal('GET', 'operator/images')).body).toMatchObject([
      { slug: 'tiny', region_ids: [bench.region] },
    ]);
  });

  it('plans have prices; one without a price is not shown; 503 when prices cannot be read', async () => {
    const { body } = await bench.api('GET', 'vm-plans');
    expect(body).toMatchObject({
      total: 2,
      data: [
        { name: 'nano', vcpu: 1, mem: 1024, disk_size: 10, monthly_price: '240.00', hourly_price: '0.40' },
        { name: 'small' },
      ],
    });
    expect((await bench.api('GET', 'vm-plans?limit=1&offset=1')).body).toMatchObject({
      count: 1,
      total: 2,
      data: [{ name: 'small' }],
    });
    bench.billing.away = true;
    expect(await bench.api('GET', 'vm-plans')).toMatchObject({
      status: 503,
      body: { error: { code: 'billing_unavailable' } },
    });
    bench.billing.away = false;
  });

  it('images of a region: the version names its id there; a region that has none, or is none, has an empty list', async () => {
    const { body } = await bench.api('GET', `projects/${bench.project}/images?cluster_id=${bench.region}`);
    expect(body).toMatchObject({
      images: [{ id: bench.image, filename: 'tiny-1.qcow2' }],
      families: [{ slug: 'tiny', kind: 'os', versions: [{ by_cluster: { [bench.region]: bench.image } }] }],
    });
    for (const region of [randomUUID(), 'nowhere'])
      expect(await bench.api('GET', `projects/${bench.project}/images?cluster_id=${region}`)).toMatchObject({
        status: 200,
        body: { images: [], families: [] },
      });
    expect((await bench.api('GET', `projects/${bench.project}/images`)).body.images).toHaveLength(1);
  });

  it('401 without a key; a key without vm:read sees regions and no plans', async () => {
    for (const path of ['vm-plans', `projects/${bench.project}/images`])
      expect((await bench.api('GET', path, undefined, null)).status).toBe(401);
    const poor = keyOf(bench.account, {
      policy: [{ effect: 'allow', actions: ['app:read'], resources: ['*'] }],
    });
    expect((await bench.api('GET', 'regions', undefined, poor)).body.total).toBe(1);
    expect((await bench.api('GET', 'vm-plans', undefined, poor)).body).toMatchObject({ data: [], total: 0 });
  });

  it('an operator adds a plan once its prices are set: 503 before, 409 for a taken name, 422 for a bad one', async () => {
    const plan = { name: 'huge', vcpu: 8, memory_mb: 16_384, disk_gb: 100 };
    expect(await bench.internal('POST', 'operator/plans', plan)).toMatchObject({
      status: 503,
      body: { error: { message: expect.stringContaining('price set --id vm.huge.month') } },
    });
    expect((await bench.internal('POST', 'operator/plans', { ...plan, name: 'nano' })).status).toBe(409);
    expect((await bench.internal('POST', 'operator/plans', { ...plan, vcpu: 0 })).status).toBe(422);
  });
});

describe('periods', () => {
  const utc = (text: string) => new Date(`${text}T12:00:00Z`);

  it.each([
    ['2026-01-31', 1, '2026-02-28'],
    ['2028-01-31', 1, '2028-02-29'],
    ['2026-11-21', 3, '2027-02-21'],
    ['2026-12-31', 12, '2027-12-31'],
  ])('%s and %d months end on %s', (from, months, to) => {
    expect(periodEnd(utc(from), { months })).toEqual(utc(to));
  });

  it('a day costs its share of its calendar month, rounded up once over all days', () => {
    expect(periodEnd(utc('2026-02-27'), { days: 3 })).toEqual(utc('2026-03-02'));
    expect(shareOfDays(280n, 1, utc('2026-02-10'))).toBe(10n);
    expect(shareOfDays(310n, 31, utc('2026-01-01'))).toBe(310n);
    // 2 days of 28 and 1 of 31: 100/28 * 2 + 100/31 = 10.37
    expect(shareOfDays(100n, 3, utc('2026-02-27'))).toBe(11n);
  });
});
