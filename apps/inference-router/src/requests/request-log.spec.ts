import type { Database } from '@nebo/persistence';
import { Config } from '@nebo/service-kit';
import { createMetrics } from '@nebo/telemetry';
import { pino } from 'pino';
import { InferenceFigures } from './inference-figures.js';
import { RequestLog } from './request-log.js';
import type { RequestRecord } from './request-record.js';

const record = (number: number): RequestRecord => ({
  operationId: `op-${number}`,
  requestId: 'req',
  account: 'a',
  key: 'k',
  format: 'chat',
  model: 'm',
  upstream: null,
  streamed: false,
  status: 200,
  outcome: 'complete',
  finish: 'stop',
  counters: null,
  priceVersion: 1,
  cost: 0n,
  forgone: 0n,
  startedAt: new Date(),
  firstByteAt: null,
  endedAt: new Date(),
});

/** A log on a database that answers when it is let. */
function make() {
  const lines: Record<string, unknown>[] = [];
  const log = pino(
    {},
    { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
  );
  const runtime = { log, config: new Config({}) };
  let letGo: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => (letGo = resolve));
  /** Ids of the operations that each statement writes. */
  const statements: string[][] = [];
  const database = {
    named: (_name: string, _text: string, [operations]: string[]) =>
      gate.then(() => void statements.push(operations!.split(','))),
    transaction: () => gate,
  } as unknown as Database;
  const figures = new InferenceFigures(createMetrics('inference-router'), runtime);
  return { requests: new RequestLog(database, figures, runtime), letGo, statements, lines };
}

describe('the log of requests', () => {
  it('writes many rows with one statement, and what waits when the service stops', async () => {
    const { requests, letGo, statements } = make();
    letGo();
    for (let index = 0; index < 300; index += 1) requests.write(record(index));
    expect(statements).toHaveLength(0);
    await requests.beforeApplicationShutdown();
    expect(statements.map((rows) => rows.length)).toEqual([300]);
  });

  it('drops rows, and says so, rather than fill the memory while the database hangs', async () => {
    const { requests, letGo, statements, lines } = make();
    for (let index = 0; index < 30_000; index += 1) requests.write(record(index));
    const lost = lines.reduce((sum, { rows }) => sum + Number(rows ?? 0), 0);
    expect(lost).toBe(10_000);
    letGo();
    await requests.flush();
    expect(statements).toHaveLength(40);
    requests.write(record(0));
    await requests.flush();
    expect(statements).toHaveLength(41);
  });

  it('a database that hangs does not keep an upstream open: nobody is in drain mode then', async () => {
    expect(await make().requests.isInDrainMode('k', 'a', 'o')).toBe(false);
  });
});
