import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import { type Router, startRouter } from '../../test/harness.js';
import { freeAborts, RequestLog } from './request-log.js';
import type { RequestRecord } from './request-record.js';

/** inference-gateway.md, 4: more than 5 unbilled aborts in an hour, or more than a hundredth of the month's spend. */
describe('drain mode of a key', () => {
  let router: Router;
  let log: RequestLog;
  let key: string;
  let account: string;
  beforeAll(async () => {
    router = await startRouter();
    log = router.nebo.services.get('inference-router')!.app.get(RequestLog);
  });
  beforeEach(() => {
    key = randomUUID();
    account = randomUUID();
  });
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });

  const write = (more: Partial<RequestRecord>) =>
    log.write({
      operationId: randomUUID(),
      requestId: 'r',
      account,
      key,
      format: 'chat',
      model: 'glm-5.3',
      upstream: 'glm',
      streamed: true,
      status: 499,
      outcome: 'aborted',
      finish: null,
      counters: null,
      priceVersion: 1,
      cost: 0n,
      forgone: 0n,
      startedAt: new Date(),
      firstByteAt: null,
      endedAt: new Date(),
      ...more,
    });
  const drains = (operation = randomUUID()) => log.isInDrainMode(key, account, operation);
  /** What happened earlier in this month, longer than an hour ago. */
  const earlier = (aborts: number, forgone: bigint, spent: bigint) =>
    router.rows(
      `insert into key_month (key_id, account_id, month, spent, forgone, aborts) values
         ('${key}', '${account}', '${new Date().toISOString().slice(0, 7)}', ${spent}, ${forgone}, ${aborts})`,
    );

  it('begins after five unbilled aborts in an hour; billed ones do not count', async () => {
    expect(await drains()).toBe(false);
    for (let index = 0; index < freeAborts; index += 1) write({});
    write({ cost: 5n });
    write({ outcome: 'complete', cost: 5n });
    expect(await drains()).toBe(false);
    write({});
    expect(await drains()).toBe(true);
  });

  it("begins above a hundredth of the month's spend, however slowly the aborts come", async () => {
    await earlier(freeAborts, 900n, 100_000n);
    write({ forgone: 100n });
    // Just a hundredth.
    expect(await drains()).toBe(false);
    write({ forgone: 1n });
    expect(await drains()).toBe(true);
    // More is spent, and its share is small again.
    write({ outcome: 'complete', status: 200, cost: 200n });
    expect(await drains()).toBe(false);
  });

  it('does not take a few early aborts of a new key for its habit', async () => {
    await earlier(freeAborts, 1_000_000n, 0n);
    expect(await drains()).toBe(false);
  });

  it('begins for clients that leave in the same moment, before any of them is in the table', async () => {
    const asked = await Promise.all(Array.from({ length: 50 }, () => drains()));
    expect(asked.filter((drained) => !drained)).toHaveLength(freeAborts + 1);
  });

  it('does not count those that left and were billed by the counters that had come', async () => {
    for (let index = 0; index < 20; index += 1) {
      const operationId = randomUUID();
      expect(await drains(operationId)).toBe(false);
      write({ operationId, cost: 5n });
    }
  });

  it('does not look at the months before', async () => {
    await router.rows(
      `insert into key_month (key_id, account_id, month, spent, forgone, aborts)
         values ('${key}', '${account}', '2020-01', 1, 1000, 1000)`,
    );
    expect(await drains()).toBe(false);
  });
});
