import { type Context } from '../core/context.js';
import { spoken } from '../core/duration.js';
import { CliError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { fillPath } from '../contract/find.js';
import { rest } from '../http/client.js';
import { cell, field } from '../output/table.js';
import { type Row } from './kinds.js';
import { type WaitSpec } from './verbs.js';

/** Without `--timeout`. Milliseconds. */
const defaultWaitMs = 15 * 60_000;

const pollMs = (waited: number): number => (waited < 5_000 ? 300 : waited < 60_000 ? 1_000 : 2_000);

/**
 * Waits until a record says a good word, with a notice at each new one.
 * @returns the record; null when it is gone and that was wanted
 * @throws CliError exit 1 for a bad word with its reason, 10 after the limit, 130 on Ctrl-C
 */
export async function waitFor(
  ctx: Context,
  wait: WaitSpec,
  ids: Readonly<Record<string, string>>,
  lookAgain: string,
): Promise<Row | null> {
  const client = await ctx.client();
  const path = fillPath(wait.read, ids);
  const began = Date.now();
  const signal = ctx.waitSignal(defaultWaitMs);
  let told: string | null = null;
  try {
    for (;;) {
      let record: Row;
      try {
        record = await client.get<Row>(path, undefined, signal);
      } catch (error) {
        if (wait.gone && error instanceof CliError && error.exit === exitCodes.notFound) return null;
        throw error;
      }
      const word = cell(field(record, wait.field));
      if (wait.good.includes(word)) return record;
      if (wait.bad.includes(word)) {
        const reason = cell(field(record, wait.reason)) || `its state is ${word}`;
        const tail = cell(record['log_tail'])
          .split('\n')
          .filter((line) => line !== '');
        throw new CliError(exitCodes.failed, 'work_failed', `It went wrong (${word}): ${reason}`, {
          lines: tail.length > 0 ? ['Its last lines:', ...tail.slice(-50)] : [],
          hint: lookAgain,
          extra: { record },
        });
      }
      const waited = Date.now() - began;
      if (word !== told) ctx.talk.notice(`${word || 'under way'} (${spoken(waited)})`);
      told = word;
      ctx.talk.status(`${word || 'under way'} · ${spoken(waited)}`);
      await rest(pollMs(waited), signal);
    }
  } catch (error) {
    if (
      error instanceof CliError &&
      (error.exit === exitCodes.timeout || error.exit === exitCodes.interrupted)
    )
      throw error.withHint(`The work goes on without you. Look again: ${lookAgain}`);
    throw error;
  } finally {
    ctx.talk.clear();
  }
}
