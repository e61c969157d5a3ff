import { createHash } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { writeByRename } from '../core/config.js';
import { CliError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { failureOf, unreachable } from '../http/failures.js';
import { bodyText, ConnectionBroken, Transport } from '../http/transport.js';
import { compactContract, type OpenApiDocument } from './compact.js';
import { type ContractTable } from './table.js';

declare const __NEBO_CONTRACT__: string | undefined;

/** The contract of the version that this command was built with. Parsed on use only. */
export function embeddedContract(): ContractTable {
  if (typeof __NEBO_CONTRACT__ !== 'string') return { version: '', operations: [], records: {} };
  return JSON.parse(__NEBO_CONTRACT__) as ContractTable;
}

interface Cached {
  etag: string;
  table: ContractTable;
}

/**
 * The installation's own contract, `{base_url}/openapi.json`, kept by its ETag under `$XDG_CACHE_HOME/nebo`. No key is
 * sent: the document is public.
 * @throws CliError when it cannot be had
 */
export async function serverContract(
  apiUrl: string,
  env: Readonly<Record<string, string | undefined>>,
  signal: AbortSignal,
): Promise<ContractTable> {
  const folder = join(env['XDG_CACHE_HOME'] || join(env['HOME'] || homedir(), '.cache'), 'nebo');
  const path = join(
    folder,
    `contract-${createHash('sha256').update(apiUrl).digest('hex').slice(0, 16)}.json`,
  );
  const cached = await readCache(path);
  const transport = new Transport(env);
  const url = new URL(`${apiUrl}/openapi.json`);
  try {
    const headers: Record<string, string> = {
      accept: 'application/json',
      ...(cached ? { 'if-none-match': cached.etag } : {}),
    };
    const answer: IncomingMessage = await transport.send({
      method: 'GET',
      url,
      headers,
      signal,
      idleMs: 30_000,
    });
    const text = await bodyText(answer, signal);
    if (answer.statusCode === 304 && cached) return cached.table;
    if (answer.statusCode !== 200) throw failureOf(answer.statusCode ?? 0, answer.headers, text);
    const table = compactContract(JSON.parse(text) as OpenApiDocument);
    const etag = answer.headers.etag;
    if (etag) {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await writeByRename(path, JSON.stringify({ etag, table } satisfies Cached), 0o600);
    }
    return table;
  } catch (error) {
    if (error instanceof CliError) throw error;
    if (error instanceof ConnectionBroken) throw unreachable(error, url.origin);
    throw new CliError(
      exitCodes.service,
      'not_the_api',
      `${url} is not a contract: ${(error as Error).message}`,
    );
  } finally {
    transport.close();
  }
}

async function readCache(path: string): Promise<Cached | null> {
  try {
    const cached = JSON.parse(await readFile(path, 'utf8')) as Partial<Cached>;
    return typeof cached.etag === 'string' && Array.isArray(cached.table?.operations)
      ? (cached as Cached)
      : null;
  } catch {
    // Absent or broken: it is only a cache.
    return null;
  }
}
