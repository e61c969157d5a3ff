/**
 * A router that spends until it is killed: `node slice-spender.mjs <url> <router> <account> <key>`. Lines of stdout are its
 * log: `end <json>` before a settlement is sent, `settled <id>` when PostgreSQL has acknowledged it. What was only written
 * may have happened or not; its next life sends it again.
 */
import { randomUUID } from 'node:crypto';
import { writeSync } from 'node:fs';
import pg from 'pg';

const [url, router, account, key] = process.argv.slice(2);
const client = new pg.Client({ connectionString: url });
client.on('error', () => process.exit(2));
await client.connect();
try {
  const { epoch } = (await client.query('select slice_open($1) as epoch', [router])).rows[0];
  await client.query('select slice_close_fenced($1, 100)', [router]);
  for (let step = 0; ; step += 1) {
    const take =
      'select id from slice_take($1, $2, $3, 3000000000, 9000000000, $4, 3000000000, 9000000000, 30)';
    const [slice, limit] = (await client.query(take, [router, epoch, account, key])).rows;
    const batch = [1, 2, 3].map(() => ({
      operation_id: randomUUID(),
      account_id: account,
      key_id: key,
      slice_id: slice.id,
      key_slice_id: limit.id,
      month: `${new Date().toISOString().slice(0, 7)}-01`,
      amount: String(500_000_000 + step),
      description: 'x',
      prices: [],
      usage: { kind: 'inference', model: 'm', input_tokens: 1 },
      at: new Date().toISOString(),
    }));
    for (const end of batch) writeSync(1, `end ${JSON.stringify(end)}\n`);
    const { usage, description, prices, ...ids } = batch[0];
    await client.query('select outcome from slice_settle($1, $2, $3, $4, $5, $6, $7, $8)', [
      router,
      'router',
      JSON.stringify([{ ...ids, description, prices, kind: usage.kind, model: usage.model }]),
      batch.map(() => 1),
      batch.map((end) => end.operation_id),
      batch.map((end) => end.amount),
      batch.map((end) => end.at),
      JSON.stringify(batch.map((end) => end.usage)),
    ]);
    for (const { operation_id: id } of batch) writeSync(1, `settled ${id}\n`);
  }
} catch (error) {
  process.exit(/terminat|ECONN|shutting|starting/.test(String(error)) ? 2 : 1);
}
