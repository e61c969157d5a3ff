import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import { account, type Router, startRouter } from '../../test/harness.js';
import { RequestLog } from './request-log.js';
import type { RequestRecord } from './request-record.js';

describe('rows of the log of requests', () => {
  let router: Router;
  let log: RequestLog;
  beforeAll(async () => {
    router = await startRouter();
    log = router.nebo.services.get('inference-router')!.app.get(RequestLog);
  });
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });

  const record = (more: Partial<RequestRecord>): RequestRecord => ({
    operationId: randomUUID(),
    requestId: 'r',
    account,
    key: randomUUID(),
    format: 'chat',
    model: 'glm-5.3',
    upstream: 'glm',
    streamed: true,
    status: 200,
    outcome: 'complete',
    finish: 'stop',
    counters: null,
    priceVersion: 1,
    cost: 0n,
    forgone: 0n,
    startedAt: new Date('2026-11-21T10:00:00.001Z'),
    firstByteAt: new Date('2026-11-21T10:00:00.999Z'),
    endedAt: new Date('2026-11-21T10:00:01.123Z'),
    ...more,
  });
  const rowsOf = (key: string) =>
    router.rows<Record<string, unknown>>(
      `select * from request_log where key_id = '${key}' order by status, request_id`,
    );

  it('stand in the table as they were noted, whatever their texts hold', async () => {
    const key = randomUUID();
    const requestId = 'a "b" \\c {d,e} NULL \n ’й';
    const full = record({
      key,
      requestId,
      status: 200,
      counters: { input: 5, cached: 4, output: 3, reasoning: 2 } as RequestRecord['counters'],
      cost: 123_456_789_012_345_678n,
    });
    const bare = record({
      key,
      requestId: 'NULL',
      status: 499,
      upstream: null,
      streamed: false,
      outcome: 'aborted',
      finish: null,
      firstByteAt: null,
    });
    log.write(full);
    log.write(bare);
    await log.flush();
    expect(await rowsOf(key)).toEqual([
      {
        operation_id: full.operationId,
        request_id: requestId,
        account_id: account,
        key_id: key,
        format: 'chat',
        model: 'glm-5.3',
        upstream: 'glm',
        streamed: true,
        status: 200,
        outcome: 'complete',
        finish_reason: 'stop',
        input_tokens: '5',
        cached_tokens: '4',
        output_tokens: '3',
        reasoning_tokens: '2',
        price_version: 1,
        cost: '123456789012345678',
        started_at: full.startedAt,
        first_byte_at: full.firstByteAt,
        ended_at: full.endedAt,
      },
      expect.objectContaining({
        operation_id: bare.operationId,
        request_id: 'NULL',
        upstream: null,
        streamed: false,
        status: 499,
        outcome: 'aborted',
        finish_reason: null,
        input_tokens: null,
        reasoning_tokens: null,
        first_byte_at: null,
      }),
    ]);
  });

  it('add up for each key and month; a repeated operation is one row', async () => {
    const [key, other] = [randomUUID(), randomUUID()];
    const twice = record({ key, cost: 7n });
    const december = new Date('2026-12-01T00:00:00.000Z');
    for (const row of [
      twice,
      record({ key, cost: 5n }),
      record({ key: other, outcome: 'aborted', forgone: 11n }),
      record({ key, cost: 1n, endedAt: december }),
    ])
      log.write(row);
    await log.flush();
    log.write(twice);
    log.write(record({ key, outcome: 'aborted', forgone: 2n }));
    await log.flush();
    expect(await rowsOf(key)).toHaveLength(4);
    const months = await router.rows(
      `select key_id, month, spent, forgone, aborts from key_month where key_id in ('${key}', '${other}') order by key_id = '${other}', month`,
    );
    expect(months).toEqual([
      { key_id: key, month: '2026-11', spent: '19', forgone: '2', aborts: '1' },
      { key_id: key, month: '2026-12', spent: '1', forgone: '0', aborts: '0' },
      { key_id: other, month: '2026-11', spent: '0', forgone: '11', aborts: '1' },
    ]);
  });

  it('a batch that the database refuses is lost and told, and the next one is written', async () => {
    const key = randomUUID();
    log.write(record({ key: 'no key' }));
    log.write(record({ key }));
    await log.flush();
    expect(await rowsOf(key)).toEqual([]);
    log.write(record({ key }));
    await log.flush();
    expect(await rowsOf(key)).toHaveLength(1);
  });
});
