import type { Provider } from '../catalogue/catalogue.js';
import type { Exchange } from './exchange.js';
import { UpstreamError } from './upstream.js';

/** Bytes of an error answer that are read for the log and the client. */
const errorBytes = 64 * 1024;
/** Milliseconds that an error answer may take to arrive. */
const errorTime = 5_000;
/** Longest time that a vendor may keep its route closed with Retry-After, seconds. */
const longestWait = 3_600;

/** The error of an answer that is not 200; reads its words. */
export async function refusalOf(
  provider: Provider,
  status: number,
  exchange: Exchange,
): Promise<UpstreamError> {
  const text = await readSome(exchange);
  const retryAfter = readRetryAfter(exchange.header('retry-after'), Date.now());
  return new UpstreamError('refused', `${provider.name} answered ${status}: ${text.slice(0, 1_000)}`, {
    status,
    ...(retryAfter === null ? {} : { retryAfter }),
    publicMessage: refusalWords(text, provider),
  });
}

/**
 * `Retry-After` in seconds, whole and from 1 to an hour; null when it says nothing usable.
 * @param now milliseconds since 1970, for the form with a date
 */
export function readRetryAfter(text: string, now: number): number | null {
  if (text === '') return null;
  const seconds = /^\d+(\.\d+)?$/.test(text) ? Number(text) : (Date.parse(text) - now) / 1_000;
  if (!(seconds > 0)) return null;
  return Math.min(Math.ceil(seconds), longestWait);
}

async function readSome(exchange: Exchange): Promise<string> {
  const parts: Uint8Array[] = [];
  let size = 0;
  const limit = setTimeout(() => void exchange.return(), errorTime);
  try {
    for await (const part of exchange) {
      parts.push(part);
      size += part.length;
      if (size > errorBytes) break;
    }
  } catch {
    // What arrived is what there is to tell.
  } finally {
    clearTimeout(limit);
  }
  return Buffer.concat(parts).toString('utf8');
}

/** `error.message` of the usual error body, as far as a client may read it; '' when there is none. */
export function refusalWords(text: string, provider: Pick<Provider, 'apiKey' | 'baseUrl'>): string {
  try {
    const body = JSON.parse(text) as { error?: { message?: unknown } | string; message?: unknown };
    const message = typeof body.error === 'string' ? body.error : (body.error?.message ?? body.message);
    if (typeof message === 'string') return maskWords(message, provider);
  } catch {
    // Not JSON: nothing for the client.
  }
  return '';
}

const mask = '********';

/** Names of accounts as vendors write them: a kind, then an id with a digit in it. */
const accountIds = [
  /\b(?:org|organization|proj|project|acct?|account|user|team|tenant|group|workspace|ak|sk|key)[-_](?=[\w-]*\d)[\w-]{4,}/gi,
  /\b((?:account|organi[sz]ation|org|project|user|team|tenant|workspace|group|customer)(?:[ _-]?(?:id|number|no\.?))?["'`]?\s*[:=#<(]*\s*["'`]?)((?=[\w-]*\d)[\w-]{5,})/gi,
];

const escaped = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

/**
 * A vendor's words about a client's request, without what belongs to the operator: the key, the host that the operator's
 * file names, and what looks like the operator's account there. At most 500 characters.
 */
export function maskWords(words: string, { apiKey, baseUrl }: Pick<Provider, 'apiKey' | 'baseUrl'>): string {
  let masked = apiKey ? words.replaceAll(apiKey, mask) : words;
  if (baseUrl !== null) {
    const { host, hostname } = new URL(baseUrl);
    for (const name of [host, hostname]) masked = masked.replace(new RegExp(escaped(name), 'gi'), mask);
  }
  masked = masked.replace(accountIds[0]!, mask).replace(accountIds[1]!, `$1${mask}`);
  return masked.slice(0, 500);
}
