import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startServices } from '@nebo/service-kit/testing';
import { ConfigError } from '@nebo/service-kit';
import { type Billing, nano, startBilling } from '../../test/billing.js';
import { identityBilling } from '../identity-billing.module.js';
import { findPriceFile, readPriceFile } from './price-file.js';

describe('prices', () => {
  let billing: Billing;
  const folder = mkdtempSync(join(tmpdir(), 'nebo-prices-'));
  const file = join(folder, 'prices.yaml');
  const write = (text: string) => {
    writeFileSync(file, text);
    return file;
  };
  beforeAll(async () => {
    billing = await startBilling();
  });
  afterAll(async () => {
    await billing?.close();
    rmSync(folder, { recursive: true, force: true });
  });

  const price = async (id: string) => (await billing.internal('GET', `prices?prefix=${id}`)).body[0];

  it('the own file has everything that is sold, the eleven models included', () => {
    const { prices, plans } = readPriceFile(findPriceFile());
    const ids = prices.map(({ id }) => id);
    expect(ids.filter((id) => /^model\..*\.(input|cache_read|output)$/.test(id))).toHaveLength(33);
    expect(ids).toEqual(
      expect.arrayContaining([
        'vm.small.month',
        'vm.small.hour',
        'disk.gb.month',
        'backup.slot.month',
        'floating_ip.month',
        'replica.vcpu.month',
        'replica.memory_gb.month',
        'app.active_cpu.hour',
        'app.memory_gb.hour',
        'tariff.free.month',
      ]),
    );
    expect(plans[0]).toMatchObject({ id: 'free', is_default: true });
  });

  it('200 lists the newest versions by prefix, and the tariff plans', async () => {
    const answer = await billing.internal('GET', 'prices?prefix=model.glm-5.3.');
    expect(answer.body).toEqual([
      { id: 'model.glm-5.3.cache_read', version: 1, amount: nano(12), unit: 'million tokens' },
      { id: 'model.glm-5.3.input', version: 1, amount: nano(60), unit: 'million tokens' },
      { id: 'model.glm-5.3.output', version: 1, amount: nano(240), unit: 'million tokens' },
    ]);
    expect((await billing.internal('GET', 'prices?prefix=model_')).body).toEqual([]);
    expect((await billing.internal('GET', 'tariff-plans')).body[0]).toEqual({
      id: 'free',
      name: 'Free',
      is_default: true,
      active_cpu_hours: 4,
      memory_gb_hours: 100,
    });
  });

  it('200 PUT makes new versions of what changed only, also when several set at once; audited', async () => {
    const set = (amount: string) => ({
      prices: [
        { id: 'test.a', amount, unit: 'month' },
        { id: 'test.b', amount: '7', unit: 'month' },
      ],
    });
    expect(
      (await billing.internal('PUT', 'prices', set('5'))).body.map((row: { version: number }) => row.version),
    ).toEqual([1, 1]);
    expect((await billing.internal('PUT', 'prices', set('6'))).body).toMatchObject([
      { id: 'test.a', version: 2, amount: '6' },
      { id: 'test.b', version: 1 },
    ]);
    await Promise.all(
      Array.from({ length: 12 }, (_, index) => billing.internal('PUT', 'prices', set(`${100 + index}`))),
    );
    expect(await price('test.a')).toMatchObject({ version: 14 });
    expect(await price('test.b')).toMatchObject({ version: 1 });
    const audit = await billing.sql<{ count: string }>(
      "select count(*) from audit_entry where action = 'price set' and account_id is null",
    );
    expect(audit[0]!.count).toBe('15');
    // Whoever keeps prices hears of what changed, and of nothing else.
    const said = await billing.sql<{ ids: string[] }>(
      "select envelope->'data'->'ids' as ids from outbox where subject like '%price.changed%' and envelope::text like '%test.%'",
    );
    expect(said.filter(({ ids }) => ids.includes('test.b'))).toHaveLength(1);
    expect(said).toHaveLength(14);
    for (const prices of [
      [{ id: 'A b', amount: '1', unit: 'x' }],
      [{ id: 'a', amount: '-1', unit: 'x' }],
      5,
      [{ id: 'a' }],
    ]) {
      expect((await billing.internal('PUT', 'prices', { prices })).status).toBe(422);
    }
  });

  it('the operator lists and sets in decimal rubles; 422 for a new price without unit', async () => {
    expect(
      (await billing.admin('price-set', { id: 'floating_ip.month', amount: '199.9' })).body,
    ).toMatchObject({ version: 2, amount: '199.90', unit: 'month' });
    expect((await billing.internal('GET', 'operator/price-list?prefix=floating_ip')).body.data).toMatchObject(
      [{ amount: '199.90' }],
    );
    expect((await billing.admin('price-set', { id: 'new.thing', amount: '1' })).status).toBe(422);
    expect(
      (await billing.admin('price-set', { id: 'new.thing', amount: '1', unit: 'hour' })).body,
    ).toMatchObject({ version: 1 });
  });

  it("a restart takes changed lines of the file as new versions and leaves the operator's prices alone", async () => {
    const restart = async (path: string) => {
      const again = await startServices({
        databaseUrl: billing.databaseUrl,
        definitions: [identityBilling],
        env: { NEBO_PRICES_FILE: path, NEBO_MASTER_KEY_FILE: join(billing.nebo.runtime.home, 'master.key') },
      });
      await again.close();
    };
    await restart(write('month: { disk.gb: "9.00", floating_ip: "180.00" }\nhour: { new.thing: "3" }'));
    expect(await price('disk.gb.month')).toMatchObject({ version: 1 });
    expect(await price('floating_ip.month')).toMatchObject({ version: 2, amount: nano(199.9) });
    await restart(write('month: { disk.gb: "10.00", floating_ip: "181.00" }'));
    expect(await price('disk.gb.month')).toMatchObject({ version: 2, amount: nano(10) });
    expect(await price('floating_ip.month')).toMatchObject({ version: 3, amount: nano(181) });
  });

  it.each([
    ['month: { disk: 9.5 }', /disk\.month: a price is text in quotes/],
    ['month: { disk: "cheap" }', /"cheap" is not an amount/],
    ['month: { disk: "-1" }', /between 0 and/],
    ['month: [1]', /month must be a mapping/],
    ['models: { m: { input: "1", output: "2" } }', /model\.m\.cache_read/],
    ['prices: {}', /there is no section "prices"/],
    [
      'tariff_plans: { a: { month: "1", active_cpu_hours: -1, memory_gb_hours: 0 } }',
      /active_cpu_hours must be/,
    ],
    ['a: [', /prices\.yaml/],
  ])('a wrong file stops the start and is named: %s', (text, message) => {
    write(text);
    expect(() => readPriceFile(file)).toThrow(ConfigError);
    expect(() => readPriceFile(file)).toThrow(message);
    expect(() => readPriceFile(file)).toThrow(file);
  });

  it('a missing file is named as well', () => {
    expect(() => readPriceFile('/nowhere/prices.yaml')).toThrow(/NEBO_PRICES_FILE: \/nowhere\/prices\.yaml/);
  });
});
