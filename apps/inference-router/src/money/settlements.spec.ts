import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sharedPostgres } from '@nebo/test-kit';
import { FailingDisk } from '../../test/failing-disk.js';
import {
  account,
  eventsOf,
  type Ground,
  hangInTheMiddle,
  newCaller,
  plenty,
  type Router,
  startGround,
  startRouter,
  until,
} from '../../test/harness.js';
import { FolderDisk } from './log-disk.js';
import { Settlements } from './settlements.js';

const messages = [{ role: 'user', content: 'hi' }];
const usage = { prompt_tokens: 10, completion_tokens: 5 };
const cost = 10n * 60_000n + 5n * 240_000n;

describe('settlements', () => {
  let ground: Ground;
  let router: Router | undefined;
  let folder: string;
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'nebo-router-'));
    ground = await startGround();
    ground.upstream.script(() => ({ usage }));
  });
  afterEach(async () => {
    ground.billing.away = ground.billing.mute = null;
    await router?.stop();
    router = undefined;
    await ground.billing.stop();
    await ground.upstream.stop();
    rmSync(folder, { recursive: true, force: true });
    expect(ground.billing.slices.violations).toEqual([]);
  });
  afterAll(async () => (await sharedPostgres()).stop());

  const start = async () => (router = await startRouter({ ground, env: { NEBO_INFERENCE_DIR: folder } }));
  const ask = (body: Record<string, unknown> = {}) => router!.chat({ model: 'glm-5.3', messages, ...body });
  const segments = () => readdirSync(folder).filter((name) => name.endsWith('.log'));
  const charged = () => ground.billing.slices.charged(account);
  const ledgerId = (answer: Response) => answer.headers.get('x-nebo-ledger-id')!;
  const health = async () => {
    const { body } = await router!.nebo.request('inference-router', { path: '/healthz', as: null });
    return body as { ok: boolean; parts: { name: string; ok: boolean; detail: string }[] };
  };

  it('cost no call on the way: one take serves many requests, the ledger has them within a second', async () => {
    await start();
    const first = await ask();
    expect(first.headers.get('x-nebo-cost')).toBe('0.0018');
    await until(() => ground.billing.times(ledgerId(first)) === 1, 'it is charged', 1_000);
    for (let index = 0; index < 10; index += 1) await ask();
    const takes = ground.billing.calls.filter((call) => call.endsWith('/take')).length;
    expect(takes).toBeLessThanOrEqual(3);
    await until(() => charged() === 11n * cost, 'all are charged', 2_000);
    expect([...ground.billing.slices.ledger.values()][0]!.settlement).toMatchObject({
      account_id: account,
      amount: cost.toString(),
      description: 'inference glm-5.3',
      prices: [{ id: 'model.glm-5.3.input', version: 1 }, {}, {}],
      usage: { kind: 'inference', model: 'glm-5.3', input_tokens: 10, output_tokens: 5 },
    });
  });

  it('survive an outage of billing: the answer is given, the charge is delivered later, exactly once', async () => {
    await start();
    expect((await ask()).status).toBe(200);
    ground.billing.away = /settle|renew|return/;
    const answers = await Promise.all([ask(), ask()]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    await until(
      async () => /[23] settlements/.test((await health()).parts.map(({ detail }) => detail).join()),
      'health',
    );
    expect(charged()).toBeLessThanOrEqual(cost);
    ground.billing.away = null;
    await until(() => charged() === 3n * cost, 'all are charged', 15_000);
    expect(answers.map((answer) => ground.billing.times(ledgerId(answer)))).toEqual([1, 1]);
  });

  it('a charge whose answer was lost is repeated and counts once', async () => {
    await start();
    ground.billing.mute = /settle/;
    const answer = await ask();
    await until(() => ground.billing.times(ledgerId(answer)) > 1, 'it is repeated', 15_000);
    ground.billing.mute = null;
    expect(charged()).toBe(cost);
  });

  it('one that billing will never take is told and put aside; the others go on, the money comes free', async () => {
    await start();
    const first = await ask();
    ground.billing.slices.poisoned.add(ledgerId(first));
    const held = ground.billing.slices.ledger.has(ledgerId(first));
    const second = await ask();
    await until(() => ground.billing.times(ledgerId(second)) === 1, 'the other is charged');
    expect(charged()).toBe(held ? 2n * cost : cost);
    await router!.stop();
    router = undefined;
    expect(ground.billing.slices.leased(account)).toBe(0n);
    expect(segments()).toEqual([]);
  });

  it('what one process could not deliver is delivered by the next, before it is ready', async () => {
    await start();
    ground.billing.away = /settle|return/;
    const answer = await ask();
    await router!.stop();
    expect(segments()).toHaveLength(1);
    expect(ground.billing.slices.leased(account)).toBeGreaterThan(0n);
    await start();
    // Billing is there, but takes no settlements yet.
    const refused = await ask();
    expect(refused.status).toBe(503);
    expect(await refused.json()).toMatchObject({ error: { code: 'billing_unavailable' } });
    const { ok, parts } = await health();
    expect(ok).toBe(false);
    expect(parts.find(({ name }) => name === 'money')).toMatchObject({
      ok: false,
      detail: expect.stringContaining('1 settlements of a former life'),
    });
    ground.billing.away = null;
    await until(async () => (await health()).ok, 'it is ready', 15_000);
    expect(ground.billing.times(ledgerId(answer))).toBe(1);
    expect(ground.billing.slices.leased(account)).toBe(0n);
    expect((await ask()).status).toBe(200);
  });

  it('starts while billing is away, answers 503, and opens by itself or with the first request', async () => {
    ground.billing.away = /./;
    await start();
    expect((await ask()).status).toBe(503);
    expect((await health()).ok).toBe(false);
    ground.billing.away = null;
    expect((await ask()).status).toBe(200);
    expect((await health()).ok).toBe(true);
  });

  it('a stop delivers what there is and gives all slices back; running answers are cut off, free', async () => {
    await start();
    expect((await ask()).status).toBe(200);
    ground.upstream.next({ handle: hangInTheMiddle });
    const response = await ask({ stream: true });
    const rest = response.text().catch(() => 'cut');
    await router!.stop();
    router = undefined;
    expect(await rest).not.toContain('[DONE]');
    expect(charged()).toBe(cost);
    expect(ground.billing.slices.leased(account)).toBe(0n);
    expect(segments()).toEqual([]);
  });

  it('a second process on the same folder refuses to start', async () => {
    await start();
    await expect(startRouter({ ground, env: { NEBO_INFERENCE_DIR: folder } })).rejects.toThrow(
      /in use by process \d+; each router needs a folder of its own \(NEBO_INFERENCE_DIR\)/,
    );
    expect((await ask()).status).toBe(200);
  });

  it('a router that another life has replaced admits nothing more, and says so', async () => {
    await start();
    expect((await ask()).status).toBe(200);
    const [routerId] = ground.billing.slices.epochs.keys();
    ground.billing.slices.call('open', { router_id: routerId } as never);
    router!.identity = newCaller(ground.billing);
    expect((await ask()).status).toBe(503);
    expect((await health()).parts.find(({ name }) => name === 'money')).toMatchObject({
      ok: false,
      detail: expect.stringContaining('end this one'),
    });
  });

  it('money is what is refused: 402 names the affordable max_tokens, and that much is admitted', async () => {
    await start();
    router!.identity = newCaller(ground.billing, 400_000_000n);
    const refused = await ask({ max_tokens: 4_000 });
    expect(refused.status).toBe(402);
    const { error } = (await refused.json()) as {
      error: { type: string; code: string; message: string; affordable_max_tokens: number };
    };
    expect(error).toMatchObject({ type: 'billing_error', code: 'insufficient_balance' });
    const { affordable_max_tokens: most } = error;
    expect(most).toBeGreaterThan(0);
    expect(error.message).toContain(`with max_tokens up to ${most} it would be covered now`);
    expect((await ask({ max_tokens: most + 1 })).status).toBe(402);
    expect((await ask({ max_tokens: most })).status).toBe(200);
  });

  it('own requests in flight are the reason: held_in_flight with Retry-After; afterwards it is admitted', async () => {
    await start();
    router!.identity = newCaller(ground.billing, 400_000_000n);
    ground.upstream.next({ handle: hangInTheMiddle });
    const client = new AbortController();
    const running = await router!.chat(
      { model: 'glm-5.3', messages, stream: true, max_tokens: 1_200 },
      { signal: client.signal },
    );
    const refused = await ask({ max_tokens: 1_000 });
    expect(refused.status).toBe(402);
    expect(refused.headers.get('retry-after')).toBe('5');
    expect(await refused.json()).toMatchObject({
      error: { type: 'billing_error', code: 'held_in_flight', affordable_max_tokens: expect.any(Number) },
    });
    client.abort();
    await running.text().catch(() => undefined);
    await until(async () => (await ask({ max_tokens: 1_000 })).status === 200, 'its money is free again');
  });

  it("the monthly limit of a key is held together with the balance: 'key_limit_reached'", async () => {
    await start();
    router!.identity = newCaller(ground.billing, plenty, { monthly_limit: '0.40' });
    const { key_id: key, account_id: id } = router!.identity;
    ground.billing.slices.limits.set(key, 400_000_000n);
    const first = await ask({ max_tokens: 1_000 });
    expect(first.status).toBe(200);
    const refused = await ask({ max_tokens: 4_000 });
    expect(refused.status).toBe(402);
    expect(await refused.json()).toMatchObject({ error: { code: 'key_limit_reached' } });
    await until(() => ground.billing.times(ledgerId(first)) === 1, 'it is charged');
    const { settlement } = ground.billing.slices.ledger.get(ledgerId(first))!;
    expect(ground.billing.slices.slices.get(settlement.key_slice_id!)).toMatchObject({ key, account: id });
  });

  it('shows its figures', async () => {
    await start();
    await ask();
    router!.identity = newCaller(ground.billing, 5n);
    await ask();
    const { text } = await router!.nebo.request('inference-router', { path: '/metrics', as: null });
    expect(text).toMatch(/nebo_inference_refusals_total\{[^}]*reason="insufficient_balance"[^}]*\} 1/);
    expect(text).toMatch(/nebo_inference_slice_takes_total\{[^}]*result="granted"[^}]*\} \d/);
    expect(text).toMatch(/nebo_inference_slice_rubles\{[^}]*share="free"[^}]*\} [\d.]+/);
    expect(text).toMatch(/nebo_inference_log_batch_count\{[^}]*\} 1/);
    expect(text).toMatch(/nebo_inference_undelivered_settlements\{[^}]*\} \d/);
  });

  describe('when the disk takes nothing', () => {
    /** Puts the log of the running router on a disk that fails. */
    async function breakDisk(): Promise<void> {
      const settlements = router!.nebo.services.get('inference-router')!.app.get(Settlements);
      const disk = new FailingDisk(new FolderDisk(folder));
      disk.failCreate = true;
      const { log } = settlements as unknown as { log: { disk: unknown; close(): Promise<void> } };
      await log.close();
      log.disk = disk;
    }

    it('the charge goes straight to billing before the last byte', async () => {
      await start();
      await breakDisk();
      const answer = await ask();
      expect(answer.status).toBe(200);
      expect(ground.billing.times(ledgerId(answer))).toBe(1);
      expect(segments()).toEqual([]);
      expect((await health()).parts.find(({ name }) => name === 'settlement log')).toMatchObject({
        ok: false,
      });
    });

    it('and where that fails too, the answer ends with an error and is free', async () => {
      await start();
      await ask();
      await breakDisk();
      await until(() => charged() === cost, 'the first is charged');
      ground.billing.away = /settle/;
      const streamed = await ask({ stream: true });
      const events = eventsOf(await streamed.text());
      expect(events.at(-1)).toMatchObject({ error: { code: 'billing_unavailable' } });
      const plain = await ask();
      expect(plain.status).toBe(503);
      ground.billing.away = null;
      await router!.stop();
      router = undefined;
      expect(charged()).toBe(cost);
      expect(ground.billing.slices.leased(account)).toBe(0n);
    });
  });

  it('the log is lines with a checksum, and room of zeros for more', async () => {
    await start();
    ground.billing.away = /settle/;
    const answer = await ask();
    const [name] = segments();
    const bytes = readFileSync(join(folder, name!));
    expect(bytes).toHaveLength(4 * 1024 * 1024);
    const end = bytes.indexOf(10) + 1;
    const line = bytes.toString('utf8', 0, end);
    expect(line).toMatch(/^[0-9a-f]{8} 0 \{"operation_id":"[^"]+".*\}\n$/);
    expect(line).toContain(ledgerId(answer));
    expect(bytes.subarray(end).every((byte) => byte === 0)).toBe(true);
  });
});
