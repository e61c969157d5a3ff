import { randomUUID } from 'node:crypto';
import {
  type ComputeUsageCharge,
  type ComputeUsageRequest,
  formatRubles,
  type V1Usage,
} from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { type Billing, compute, nano, startBilling } from '../../test/billing.js';
import { Chance } from '../../test/random.js';
import { StandingService } from '../standing/standing.service.js';
import { ComputeUsageService } from './compute-usage.service.js';

/** Sequences of the comparison with a model: 40 in `npm test`, more with NEBO_PROOF; all follow from NEBO_SEED. */
const sequences = Math.max(40, Math.floor(Number(process.env['NEBO_PROOF'] || 0)));
const seed = Number(process.env['NEBO_SEED'] || 20_261_121);

const cpuHour = 3_600_000_000n;
const gbHour = 3_686_400_000n;
/** Prices of the file: 1.80 for an hour of CPU, 0.35 for a GB-hour. */
const cpuPrice = 1_800_000_000n;
const memoryPrice = 350_000_000n;
const cost = (cpu: bigint, memory: bigint, prices = [cpuPrice, memoryPrice] as const): bigint => {
  const whole = cpu * prices[0] * 1_024n + memory * prices[1] * 1_000n;
  return (whole + cpuHour * 1_024n - 1n) / (cpuHour * 1_024n);
};

describe('use of apps on demand', () => {
  let billing: Billing;
  beforeAll(async () => {
    billing = await startBilling();
  });
  afterAll(() => billing?.close());

  const app = randomUUID();
  const hour = '2026-03-05T14:00:00.000Z';
  let count = 0;
  const request = (
    account: string,
    cpu: bigint,
    memory: bigint,
    more: Partial<ComputeUsageRequest> = {},
  ) => ({
    operation_id: `usage:${app}:replica:${hour}:${++count}`,
    account_id: account,
    app_id: app,
    kind: 'replica' as const,
    hour,
    cpu_us: Number(cpu),
    memory_mb_ms: memory.toString(),
    free: null,
    description: 'shop, on demand, 2026-03-05 14:00 UTC',
    ...more,
  });
  const post = (body: ComputeUsageRequest) => billing.money('compute-usage', body);
  const charge = async (body: ComputeUsageRequest): Promise<ComputeUsageCharge> => {
    const answer = await post(body);
    if (answer.status !== 200) throw new Error(answer.text);
    return answer.body;
  };
  const adds = async () =>
    expect((await billing.internal('POST', 'money/reconcile')).body).toMatchObject({
      ok: true,
      differences: [],
    });

  it('200 under an id that a completion has too: both are in the usage', async () => {
    const { account_id } = await billing.account('100');
    const used = request(account_id, 5n * cpuHour, 0n);
    const call = { operation_id: used.operation_id, account_id };
    await billing.money('reserve', { ...call, kind: 'inference', amount: nano(2), description: '' });
    const usage = { kind: 'inference', model: 'glm-5.3' };
    expect((await billing.money('capture', { ...call, usage })).status).toBe(200);
    expect((await charge(used)).amount).toBe(cost(cpuHour, 0n).toString());
    // A repeat of either adds nothing.
    await charge(used);
    await billing.money('capture', { ...call, usage });
    expect(
      await billing.sql('select kind, amount::text from usage_record where account_id = $1 order by seq', [
        account_id,
      ]),
    ).toEqual([
      { kind: 'inference', amount: nano(2) },
      { kind: 'compute', amount: cost(cpuHour, 0n).toString() },
    ]);
    await adds();
  });

  it('200: the plan first, the rest from credits and money, with the prices, below zero too', async () => {
    const { account_id, as } = await billing.account('100', '3');
    // The free plan: 4 hours of CPU and 100 GB-hours.
    const within = await charge(request(account_id, 3n * cpuHour, 40n * gbHour));
    expect(within).toMatchObject({ cpu_included_us: Number(3n * cpuHour), amount: '0' });
    expect(
      await billing.sql('select 1 from transfer where account_id = $1 and kind = $2', [account_id, 'charge']),
    ).toEqual([]);
    const over = await charge(request(account_id, 5n * cpuHour, 70n * gbHour));
    expect(over).toMatchObject({
      cpu_included_us: Number(cpuHour),
      memory_included_mb_ms: (60n * gbHour).toString(),
      amount: cost(4n * cpuHour, 10n * gbHour).toString(),
    });
    expect(over.amount).toBe(nano(4 * 1.8 + 10 * 0.35));
    expect(await billing.balance(account_id)).toMatchObject({ balance: '92.30', credits: '0.00' });
    const [line] = (await billing.api('GET', 'account/ledger', as)).body.data;
    expect(line).toMatchObject({
      kind: 'charge',
      amount: '-7.70',
      credits_amount: '-3.00',
      description:
        'shop, on demand, 2026-03-05 14:00 UTC: 14400 s of Active CPU and 10 GB-hours beyond the plan',
    });
    const [{ prices } = { prices: null }] = await billing.sql<{ prices: unknown }>(
      "select prices from transfer where account_id = $1 and kind = 'charge'",
      [account_id],
    );
    expect(prices).toEqual([
      { id: 'app.active_cpu.hour', version: 1 },
      { id: 'app.memory_gb.hour', version: 1 },
    ]);
    await charge(request(account_id, 100n * cpuHour, 0n));
    expect(await billing.balance(account_id)).toMatchObject({ balance: '-87.70' });
    // Who owes is short of money like everybody else.
    await billing.provider(StandingService).sweep(account_id);
    const standing = (await billing.internal('GET', 'standing')).body as { account_id: string }[];
    expect(standing.find((one) => one.account_id === account_id)).toMatchObject({ state: 'empty' });
    await adds();
  });

  it('a repeat charges nothing and answers the same, also when several come at once', async () => {
    const { account_id } = await billing.account('100');
    const body = request(account_id, 6n * cpuHour, 0n);
    const answers = await Promise.all(Array.from({ length: 8 }, () => charge(body)));
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    expect(await billing.balance(account_id)).toMatchObject({ balance: '96.40' });
    await charge({ ...body, description: 'renamed meanwhile' });
    for (const more of [
      { cpu_us: 1 },
      { memory_mb_ms: '1' },
      { free: 'simulated' as const },
      { kind: 'run' as const },
    ])
      expect(await post({ ...body, ...more })).toMatchObject({
        status: 409,
        body: { error: { code: 'operation_reused' } },
      });
    expect(await billing.balance(account_id)).toMatchObject({ balance: '96.40' });
  });

  it('404 for an unknown account, 400 for another than the call is signed for, 422 names the field', async () => {
    const { account_id } = await billing.account();
    expect((await post(request(randomUUID(), 1n, 1n))).status).toBe(404);
    const foreign = { ...compute, account_id: randomUUID() };
    expect(
      (await billing.internal('POST', 'money/compute-usage', request(account_id, 1n, 1n), foreign)).status,
    ).toBe(400);
    for (const [field, value] of Object.entries({
      cpu_us: -1,
      memory_mb_ms: '-1',
      hour: 'yesterday',
      kind: 'vm',
      free: 'because',
      app_id: 'x',
      operation_id: '',
    }))
      expect(
        await post({ ...request(account_id, 1n, 1n), [field]: value } as ComputeUsageRequest),
      ).toMatchObject({
        status: 422,
        body: { detail: [{ loc: ['body', field] }] },
      });
    const later = new Date(Date.now() + 3_600_000).toISOString();
    expect((await post(request(account_id, 1n, 1n, { hour: later }))).status).toBe(422);
  });

  it('what a thousandth of a kopeck costs is rounded up once; nothing costs nothing, and is written down', async () => {
    const { account_id, as } = await billing.account('1');
    await charge(request(account_id, 4n * cpuHour, 100n * gbHour));
    expect((await charge(request(account_id, 1n, 1n))).amount).toBe('1');
    expect((await charge(request(account_id, 0n, 0n, { free: 'simulated' }))).amount).toBe('0');
    expect((await charge(request(account_id, 0n, 7_000_000n, { free: 'cpu_unmeasured' }))).amount).toBe(
      cost(0n, 7_000_000n).toString(),
    );
    const { apps } = (await billing.api('GET', 'usage?from=2026-03-01&to=2026-03-31', as)).body as V1Usage;
    expect(apps.totals).toMatchObject({ free_hours: 1, active_cpu_seconds: '14400.000001' });
  });

  it('64 hours at once never spend the allowance twice', async () => {
    const { account_id } = await billing.account('1000');
    const replicas = [1, 2].map(() => {
      const url = billing.nebo.runtime.databaseUrl('identity_billing');
      const database = new Database({ url, schema: 'identity_billing', max: 16 });
      return { database, service: new ComputeUsageService(database) };
    });
    const part = cpuHour / 7n;
    const answers = await Promise.all(
      Array.from({ length: 64 }, (_, index) =>
        replicas[index % 2]!.service.charge('apps-builder', request(account_id, part, gbHour * 3n)),
      ),
    );
    for (const { database } of replicas) await database.close();
    const sum = (of: (answer: ComputeUsageCharge) => bigint) =>
      answers.reduce((total, answer) => total + of(answer), 0n);
    expect(sum((answer) => BigInt(answer.cpu_included_us))).toBe(4n * cpuHour);
    expect(sum((answer) => BigInt(answer.memory_included_mb_ms))).toBe(100n * gbHour);
    const exact = cost(64n * part - 4n * cpuHour, 92n * gbHour);
    const charged = sum((answer) => BigInt(answer.amount));
    expect(charged >= exact && charged <= exact + 64n).toBe(true);
    await adds();
  });

  it('an hour is charged at the prices that were in force when it began', async () => {
    const { account_id } = await billing.account('1000');
    await charge(request(account_id, 4n * cpuHour, 100n * gbHour));
    const versions = [
      [2, 2_000_000_000, '2026-03-10T12:30:00Z'],
      [3, 3_000_000_000, '2026-03-10T13:00:00Z'],
    ] as const;
    await billing.sql("update price set created_at = '2026-01-01T00:00:00Z' where id like 'app.%'");
    for (const [version, amount, at] of versions)
      await billing.sql(
        "insert into price (id, version, amount, unit, origin, created_at) values ('app.active_cpu.hour', $1, $2, 'hour', 'set', $3)",
        [version, amount, at],
      );
    const at = async (time: string) =>
      (await charge(request(account_id, cpuHour, 0n, { hour: time }))).amount;
    expect([
      await at('2026-03-10T11:00:00Z'),
      await at('2026-03-10T12:00:00Z'),
      await at('2026-03-10T13:00:00Z'),
      // Of a time before the first version: that one.
      await at('2025-03-10T13:00:00Z'),
    ]).toEqual([nano(1.8), nano(1.8), nano(3), '0']);
    await billing.sql("delete from price where id = 'app.active_cpu.hour' and version > 1");
    // The operator's own commands know these prices.
    const list = (
      await billing.internal('GET', 'operator/price-list?prefix=app.', undefined, {
        ...compute,
        service: 'operator',
      })
    ).body.data as { id: string }[];
    expect(list.map(({ id }) => id)).toEqual(['app.active_cpu.hour', 'app.memory_gb.hour']);
  });

  it('usage of the month by day, app and kind, and what is left of the allowance', async () => {
    const { account_id, as } = await billing.account('1000');
    const now = new Date(Math.floor(Date.now() / 3_600_000) * 3_600_000 - 3_600_000);
    const today = now.toISOString();
    const other = randomUUID();
    await charge(request(account_id, cpuHour, gbHour, { hour: today }));
    await charge(request(account_id, 5n * cpuHour, 0n, { hour: today, kind: 'run' }));
    await charge(
      request(account_id, 0n, gbHour / 2n, { hour: today, app_id: other, free: 'cpu_unmeasured' }),
    );
    const report = (query: string) => billing.api('GET', `usage?${query}`, as);
    const { body } = await report('tz=UTC');
    expect(body).toMatchObject({ rows: [], totals: { requests: 0, amount: '0.00' } });
    const day = today.slice(0, 10);
    expect(body.apps.rows).toHaveLength(3);
    expect(body.apps.rows).toEqual(
      expect.arrayContaining([
        {
          day,
          app_id: app,
          kind: 'run',
          active_cpu_seconds: '18000',
          memory_gb_hours: '0',
          included_cpu_seconds: '10800',
          included_memory_gb_hours: '0',
          free_hours: 0,
          amount: '3.60',
        },
        expect.objectContaining({ app_id: other, memory_gb_hours: '0.5', free_hours: 1, amount: '0.00' }),
      ]),
    );
    expect(body.apps.totals).toMatchObject({
      active_cpu_seconds: '21600',
      memory_gb_hours: '1.5',
      amount: '3.60',
    });
    const month = new Date().toISOString().slice(0, 7) === day.slice(0, 7);
    const spent = month ? { used: '4', left: '0' } : { used: '0', left: '4' };
    expect(body.allowance).toMatchObject({ plan: 'free', active_cpu_hours: { included: '4', ...spent } });
    expect((await report(`by=model&app_id=${other}`)).body.apps.rows).toMatchObject([
      { day: null, app_id: other },
    ]);
    expect((await report('model=x')).body.apps).toMatchObject({ rows: [], totals: { amount: '0.00' } });
    expect(await report('app_id=x')).toMatchObject({
      status: 422,
      body: { detail: [{ loc: ['query', 'app_id'] }] },
    });
    const stranger = await billing.account();
    expect((await billing.api('GET', 'usage', stranger.as)).body.apps.rows).toEqual([]);
  });

  it(`${sequences} random sequences are what a model says: months, repeats, disorder, allowances`, async () => {
    const months = ['2026-01', '2026-02', '2026-05'];
    for (let number = 0; number < sequences; number += 1) {
      const chance = new Chance(seed + number);
      const { account_id } = await billing.account('10');
      const left = new Map(months.map((month) => [month, { cpu: 4n * cpuHour, memory: 100n * gbHour }]));
      const sent: { body: ComputeUsageRequest; amount: string }[] = [];
      let charged = 0n;
      for (let step = 0; step < 12; step += 1) {
        const again = sent.length > 0 && chance.next() < 0.3 ? chance.pick(sent) : null;
        if (again) {
          expect([seed + number, step, (await charge(again.body)).amount]).toEqual([
            seed + number,
            step,
            again.amount,
          ]);
          continue;
        }
        const month = chance.pick(months);
        const cpu = BigInt(
          chance.pick([0, 1, 999, chance.int(0, 3_600_000_000), chance.int(0, 9_000_000_000)]),
        );
        const memory = BigInt(chance.pick([0, 1, chance.int(0, 100_000_000), 90_000_000_000]));
        // The first and the last hour of a month in UTC.
        const time = chance.pick([`${month}-01T00:00:00Z`, `${month}-28T23:00:00Z`]);
        const body = request(account_id, cpu, memory, { hour: time });
        const free = left.get(month)!;
        const [cpuFree, memoryFree] = [
          cpu < free.cpu ? cpu : free.cpu,
          memory < free.memory ? memory : free.memory,
        ];
        free.cpu -= cpuFree;
        free.memory -= memoryFree;
        const amount = cost(cpu - cpuFree, memory - memoryFree).toString();
        charged += BigInt(amount);
        expect([seed + number, step, await charge(body)]).toEqual([
          seed + number,
          step,
          {
            operation_id: body.operation_id,
            cpu_included_us: Number(cpuFree),
            memory_included_mb_ms: memoryFree.toString(),
            amount,
          },
        ]);
        sent.push({ body, amount });
      }
      expect((await billing.balance(account_id))['balance']).toBe(formatRubles(BigInt(nano(10)) - charged));
    }
    await adds();
  });

  it('the reconciliation tells of an allowance and of a charge that were changed by hand', async () => {
    const { account_id } = await billing.account('10');
    await charge(request(account_id, 5n * cpuHour, 0n));
    await billing.sql('update allowance_month set cpu_us = cpu_us - 1 where account_id = $1', [account_id]);
    const { differences } = (await billing.internal('POST', 'money/reconcile')).body as {
      differences: { account_id: string; subject: string }[];
    };
    expect(differences.map(({ subject }) => subject)).toEqual(['allowance of 2026-03-01 CPU']);
    await expect(
      billing.sql('update compute_usage set amount = 0 where account_id = $1', [account_id]),
    ).rejects.toThrow();
    await billing.sql('update allowance_month set cpu_us = cpu_us + 1 where account_id = $1', [account_id]);
    await adds();
  });
});
