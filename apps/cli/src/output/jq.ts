import { CliError, usageError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';

const said = (error: unknown) =>
  (error as Error).message
    .replace(/^Failed to execute raw query: /, '')
    .replace(/^jq: (error: )?/, '')
    .split('\n')[0]!
    .trim();

/**
 * Compiles a filter without running it, so that a wrong one is exit 2 before anything is sent.
 * @throws CliError usage
 */
export async function checkFilter(filter: string): Promise<void> {
  const jq = await import('jq-wasm');
  try {
    await jq.raw('null', `def nebo_check: (${filter}\n); empty`);
  } catch (error) {
    throw usageError(`--jq: ${said(error)}`, { hint: 'The language: https://jqlang.org/manual' });
  }
}

/**
 * Runs a filter over one value; strings come without quotes, as with `jq -r`.
 * @throws CliError (exit 1) when the filter fails on this value: the answer had come, so it is not a usage error
 */
export async function runFilter(value: unknown, filter: string): Promise<string> {
  const jq = await import('jq-wasm');
  try {
    const text = await jq.raw(JSON.stringify(value ?? null), filter, ['-r']);
    return text === '' || text.endsWith('\n') ? text : `${text}\n`;
  } catch (error) {
    throw new CliError(exitCodes.failed, 'jq_failed', `--jq: ${said(error)}`);
  }
}
