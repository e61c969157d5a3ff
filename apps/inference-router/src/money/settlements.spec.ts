import { Database } from '@nebo/persistence';
import { sharedPostgres } from '@nebo/test-kit';
import {
  account,
  type Ground,
  hangInTheMiddle,
  newCaller,
  plenty,
  type Router,
  startGround,
  startRouter,
  until,
} from '../../test/harness.js';

const messages = [{ role: 'user', content: 'hi' }];
const usage = { prompt_tokens: 10, completion_tokens: 5 };
const cost = 10n * 60_000n + 5n * 240_000n;

describe('settlements', () => {
  let ground: Ground;
  let router: Router | undefined;
  beforeEach(async () => {
    ground = await startGround();
  });
  afterEach(async () => {
    ground.billing.away = ground.billing.mute = null;
    await router?.stop();
    router = undefined;
    await ground.billing.stop();
    await ground.upstream.stop();
  });
  afterAll(async () => (await sharedPostgres()).stop());

  const ask = (body: Record<string, unknown> = {}) => router!.chat({ model: 'glm-5.3', messages, ...body });
  const states = async () =>
    (await router!.rows<{ state: string }>('select state from settlement order by created_at')).map(
      (row) => row.state,
    );

  it('survive an outage of billing: the answer is given, the charge is delivered later, exactly once', async () => {
    router = await startRouter({ ground });
    ground.billing.account(account, plenty);
    ground.upstream.script(() => ({ usage }));
    expect((await ask()).status).toBe(200);
    ground.billing.away = /capture|void/;
    const started = Date.now();
    expect((await ask()).status).toBe(200);
    // The client does not wait for billing to come back.
    expect(Date.now() - started).toBeLessThan(3_000);
    expect(await states()).toEqual(['done', 'capture']);
    ground.billing.away = null;
    await until(() => ground.billing.inState('captured').length === 2, 'both are captured', 15_000);
    await until(async () => (await states()).every((state) => state === 'done'), 'both rows are done');
    expect(ground.billing.available(account)).toBe(plenty - 2n * cost);
    expect(ground.billing.inState('captured').map((hold) => hold.captures)).toEqual([1, 1]);
  });

  it('a capture whose answer was lost is repeated and counts once', async () => {
    router = await startRouter({ ground });
    ground.upstream.script(() => ({ usage }));
    ground.billing.mute = /capture/;
    expect((await ask()).status).toBe(200);
    ground.billing.mute = null;
    await until(async () => (await states()).join() === 'done', 'the row is done', 15_000);
    const [hold] = ground.billing.inState('captured');
    expect(hold!.captures).toBeGreaterThan(1);
    expect(ground.billing.available(account)).toBe(plenty - cost);
  });

  it('what one process decided and could not deliver is delivered by another', async () => {
    router = await startRouter({ ground });
    ground.upstream.script(() => ({ usage }));
    expect((await ask()).status).toBe(200);
    ground.billing.away = /capture/;
    expect((await ask()).status).toBe(200);
    await router.stop();
    ground.billing.away = null;
    router = await startRouter({ ground });
    await until(
      () => ground.billing.inState('captured').length === 2,
      'captured by the next process',
      15_000,
    );
    expect(ground.billing.available(account)).toBe(plenty - 2n * cost);
  });

  it('a refusal for good is kept for the operator and not repeated', async () => {
    router = await startRouter({ ground });
    ground.upstream.script(() => {
      // Somebody gave the hold back meanwhile.
      for (const hold of ground.billing.holds.values()) hold.state = 'void';
      return { usage };
    });
    expect((await ask()).status).toBe(200);
    await until(async () => (await states()).join() === 'refused', 'the row is refused');
    const [row] = await router.rows<{ error: string }>('select error from settlement');
    expect(row!.error).toContain('409 already_void');
  });

  it('rows of one account are hidden from another, and from nobody in particular', async () => {
    router = await startRouter({ ground });
    await ask();
    const database = router.nebo.services.get('inference-router')!.app.get(Database);
    const count = async (as?: string) => {
      const read = (sql: { query<R>(text: string): Promise<R[]> }) =>
        sql.query<{ count: bigint }>('select count(*) from settlement');
      return Number((as ? await database.transaction(read, as) : await read(database))[0]!.count);
    };
    expect(await count()).toBe(0);
    expect(await count(account)).toBe(1);
    expect(await count('00000000-0000-4000-8000-0000000000ff')).toBe(0);
    expect(await count('system')).toBe(1);
  });

  it('stopping the service cuts running answers off, free, and leaves no hold', async () => {
    router = await startRouter({ ground });
    ground.upstream.next({ handle: hangInTheMiddle });
    const response = await ask({ stream: true });
    const rest = response.text().catch(() => 'cut');
    await router.stop();
    router = undefined;
    expect(await rest).not.toContain('[DONE]');
    expect(ground.billing.inState('held')).toEqual([]);
    expect(ground.billing.available(account)).toBe(plenty);
  });

  it('many requests of an account with money for few never spend more than it has', async () => {
    router = await startRouter({ ground });
    router.identity = newCaller(ground.billing);
    ground.upstream.script(() => ({ usage, delay: 50 }));
    await ask();
    const hold = [...ground.billing.holds.values()][0]!.amount;
    router.identity = newCaller(ground.billing, hold * 7n);
    const answers = await Promise.all(Array.from({ length: 40 }, () => ask()));
    const ok = answers.filter((answer) => answer.status === 200).length;
    expect(answers.every((answer) => answer.status === 200 || answer.status === 402)).toBe(true);
    expect(ok).toBeGreaterThanOrEqual(7);
    await until(() => ground.billing.inState('held').length === 0, 'nothing is held');
    expect(ground.billing.available(router.identity.account_id)).toBe(hold * 7n - BigInt(ok) * cost);
  });
});
