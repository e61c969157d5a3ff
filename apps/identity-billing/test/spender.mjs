/**
 * A process that spends until it is killed: `node spender.mjs <url> <account> <name>`. Each line of stdout is a step that
 * PostgreSQL has acknowledged: `reserve <id>`, `capture <id>`. What stands on no line may have happened or not.
 */
import { writeSync } from 'node:fs';
import pg from 'pg';

const [url, account, name] = process.argv.slice(2);
const client = new pg.Client({ connectionString: url });
client.on('error', () => process.exit(2));
await client.connect();
for (let step = 0; ; step += 1) {
  const id = `${name}-${step}`;
  const reserve = 'select state from money_reserve($1, $2, $3, $4, null, $5, $6, null, 3600)';
  try {
    await client.query(reserve, [
      account,
      id,
      'spender',
      'control',
      1_000_000_000n + BigInt(step),
      'spending',
    ]);
    writeSync(1, `reserve ${id}\n`);
    await client.query('select state from money_capture($1, $2, $3, null, null)', [
      account,
      id,
      500_000_000n + BigInt(step),
    ]);
    writeSync(1, `capture ${id}\n`);
  } catch (error) {
    process.exit(/terminat|ECONN|shutting|starting/.test(String(error)) ? 2 : 1);
  }
}
