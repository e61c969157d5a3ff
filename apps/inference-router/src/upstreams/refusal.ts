import type { Provider } from '../catalogue/catalogue.js';
import { UpstreamError } from './upstream-error.js';

/** Bytes of an error answer that are read for the log and the client. */
const errorBytes = 64 * 1024;
/** Longest wait that a client is told, seconds. */
const longestWait = 3_600;

/** An answer that is not 200, while its words arrive. */
export class Refusal {
  /** Milliseconds that the words may take to arrive. */
  static readonly timeLimit = 5_000;
  private readonly parts: Buffer[] = [];
  private size = 0;

  constructor(
    private readonly provider: Provider,
    private readonly status: number,
    private readonly retryAfter: string,
  ) {}

  /** @returns true when enough of it is there */
  add(part: Buffer): boolean {
    this.parts.push(part);
    this.size += part.length;
    return this.size > errorBytes;
  }

  error(): UpstreamError {
    const { provider } = this;
    const text = Buffer.concat(this.parts).toString('utf8');
    const status = isAboutAccount(text, provider) ? 402 : this.status;
    const retryAfter = readRetryAfter(this.retryAfter, Date.now());
    return new UpstreamError('refused', `${provider.name} answered ${this.status}: ${text.slice(0, 1_000)}`, {
      status,
      ...(retryAfter === null ? {} : { retryAfter }),
      publicMessage: refusalWords(text, provider),
    });
  }
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

/** Does the body's code say that the operator's account is out of money, whatever the status? */
function isAboutAccount(text: string, { dialect: { accountCodes } }: Pick<Provider, 'dialect'>): boolean {
  if (!accountCodes) return false;
  try {
    const body = JSON.parse(text) as { error?: { code?: unknown; type?: unknown }; code?: unknown } | null;
    return [body?.error?.code, body?.error?.type, body?.code].some(
      (code) => typeof code === 'string' && accountCodes.includes(code),
    );
  } catch {
    return false;
  }
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

/**
 * Names of accounts as vendors write them: a kind, then an id with a digit in it. Vendors repeat what clients sent, so every
 * repetition is bounded: an endless word must not be looked through again from each of its places.
 */
const accountIds = [
  /\b(?:org|organization|proj|project|acct?|account|user|team|tenant|group|workspace|ak|sk|key)[-_](?=[\w-]{0,80}\d)[\w-]{4,}/gi,
  /\b((?:account|organi[sz]ation|org|project|user|team|tenant|workspace|group|customer)(?:[ _-]?(?:id|number|no\.?))?["'`]?\s{0,8}[:=#<(]{0,4}\s{0,8}["'`]?)((?=[\w-]{0,80}\d)[\w-]{5,})/gi,
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
