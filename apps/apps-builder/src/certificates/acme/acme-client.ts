import type { KeyObject } from 'node:crypto';
import { type SafeClient, SafeNetFailed, SafeNetRefused } from '@nebo/safe-net';
import { AcmeError, retryAfter, sentenceOf } from './acme-error.js';
import { type AccountBinding, boundBy } from './binding.js';
import { signedRequest } from './jws.js';

/** One exchange at most, milliseconds: a step of a lifecycle waits for it. */
const timeoutMs = 10_000;
/** Largest answer, bytes; a chain has a few KiB. */
const maxBytes = 256 * 1024;
/** A nonce may have run out between two requests; a fresh one comes with the refusal. */
const nonceTries = 3;

/** An account at the authority. */
export interface AcmeAccount {
  key: KeyObject;
  /** Null: not registered yet. */
  url: string | null;
}

export interface AcmeOrder {
  url: string;
  status: string;
  authorizations: string[];
  finalize: string;
  certificate: string | null;
  error: unknown;
}

export interface AcmeAuthorization {
  status: string;
  name: string;
  challenges: { type: string; url: string; token: string; status: string; error: unknown }[];
}

interface Answer {
  headers: Record<string, string | string[] | undefined>;
  text: string;
}

/** A client of one authority (RFC 8555). Keeps directory and nonces in memory; all else is the caller's. */
export class AcmeClient {
  private directory: Promise<Record<string, unknown>> | null = null;
  private readonly nonces: string[] = [];

  constructor(
    private readonly http: SafeClient,
    private readonly directoryUrl: string,
  ) {}

  /**
   * Registers a key; one that is known answers with its account.
   * @param binding for authorities that take only their customers
   * @returns the account's address
   * @throws AcmeError
   */
  async register(
    key: KeyObject,
    email: string | null,
    binding: AccountBinding | null = null,
  ): Promise<string> {
    const url = await this.place('newAccount');
    const { headers } = await this.post({ key, url: null }, url, {
      termsOfServiceAgreed: true,
      ...(email === null ? {} : { contact: [`mailto:${email}`] }),
      ...(binding === null ? {} : { externalAccountBinding: boundBy(binding, key, url) }),
    });
    return this.location(headers);
  }

  /** @throws AcmeError */
  async newOrder(account: AcmeAccount, names: readonly string[]): Promise<AcmeOrder> {
    const identifiers = names.map((value) => ({ type: 'dns', value }));
    const answer = await this.post(account, await this.place('newOrder'), { identifiers });
    return orderOf(this.location(answer.headers), answer.text);
  }

  /** @throws AcmeError */
  async order(account: AcmeAccount, url: string): Promise<AcmeOrder> {
    return orderOf(url, (await this.post(account, url, null)).text);
  }

  /** @throws AcmeError */
  async authorization(account: AcmeAccount, url: string): Promise<AcmeAuthorization> {
    const body = record((await this.post(account, url, null)).text);
    const { identifier, status, challenges } = body as Record<string, never>;
    const list = Array.isArray(challenges) ? (challenges as Record<string, unknown>[]) : [];
    return {
      status: text(status),
      name: text((identifier as { value?: unknown } | undefined)?.value),
      challenges: list
        .filter((one) => typeof one['token'] === 'string' && /^[\w-]{1,200}$/.test(one['token']))
        .map((one) => ({
          type: text(one['type']),
          url: text(one['url']),
          token: text(one['token']),
          status: text(one['status']),
          error: one['error'],
        })),
    };
  }

  /** Says that a challenge may be looked at. @throws AcmeError */
  async respond(account: AcmeAccount, url: string): Promise<void> {
    await this.post(account, url, {});
  }

  /** @param csr DER @throws AcmeError */
  async finalize(account: AcmeAccount, order: AcmeOrder, csr: Buffer): Promise<AcmeOrder> {
    const answer = await this.post(account, order.finalize, { csr: csr.toString('base64url') });
    return orderOf(order.url, answer.text);
  }

  /** @returns PEM, leaf first @throws AcmeError */
  async chain(account: AcmeAccount, url: string): Promise<string> {
    const { text: pem } = await this.post(account, url, null);
    if (!pem.includes('-----BEGIN CERTIFICATE-----')) throw odd('sent something that is no certificate');
    return pem;
  }

  private async post(account: AcmeAccount, url: string, payload: object | null): Promise<Answer> {
    for (let attempt = 1; ; attempt += 1) {
      const nonce = this.nonces.pop() ?? (await this.nonce());
      const body = signedRequest(account.key, account.url, { url, nonce, payload });
      try {
        return await this.send('POST', url, body);
      } catch (error) {
        if (!(error instanceof AcmeError) || attempt >= nonceTries || !/^badNonce\b/.test(error.message))
          throw error;
      }
    }
  }

  private async nonce(): Promise<string> {
    const { headers } = await this.send('HEAD', await this.place('newNonce'));
    this.nonces.pop();
    const nonce = headers['replay-nonce'];
    if (typeof nonce !== 'string') throw odd('gave no nonce');
    return nonce;
  }

  private async place(name: string): Promise<string> {
    this.directory ??= this.send('GET', this.directoryUrl)
      .then(({ text: body }) => record(body))
      .catch((error: unknown) => {
        // Not remembered: the authority may be back at the next attempt.
        this.directory = null;
        throw error;
      });
    return text((await this.directory)[name]);
  }

  private async send(method: string, url: string, body?: string): Promise<Answer> {
    let answer;
    try {
      answer = await this.http.request(url, {
        method,
        headers: body === undefined ? {} : { 'content-type': 'application/jose+json' },
        ...(body === undefined ? {} : { body }),
        maxBytes,
        timeoutMs,
        maxRedirects: 0,
      });
    } catch (error) {
      if (error instanceof SafeNetFailed || error instanceof SafeNetRefused)
        throw new AcmeError('away', `the certificate authority does not answer: ${error.message}`, null, {
          cause: error,
        });
      throw error;
    }
    const { status, headers } = answer;
    const nonce = headers['replay-nonce'];
    if (typeof nonce === 'string' && /^[\w-]{1,500}$/.test(nonce)) this.nonces.splice(0, 50, nonce);
    const words = answer.body.toString('utf8');
    if (status >= 200 && status < 300) return { headers, text: words };
    throw problemOf(status, headers, words);
  }

  private location(headers: Answer['headers']): string {
    const url = headers['location'];
    if (typeof url !== 'string' || !URL.canParse(url)) throw odd('named no address');
    return url;
  }
}

function problemOf(status: number, headers: Answer['headers'], words: string): AcmeError {
  let problem: unknown = null;
  try {
    problem = JSON.parse(words);
  } catch {
    // Not every error of a proxy in front of the authority is a problem document.
  }
  const sentence = sentenceOf(problem, `status ${status}`);
  const wait = retryAfter(headers['retry-after']);
  if (status === 429 || sentence.startsWith('rateLimited')) return new AcmeError('limited', sentence, wait);
  if (sentence.startsWith('accountDoesNotExist')) return new AcmeError('unknown_account', sentence);
  if (status >= 500)
    return new AcmeError('away', `the certificate authority is in trouble (${sentence})`, wait);
  return new AcmeError('refused', sentence, wait);
}

const odd = (what: string) => new AcmeError('odd', `the certificate authority ${what}`);

function record(words: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(words);
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return value as Record<string, unknown>;
  } catch {
    // Told below.
  }
  throw odd('answered with something that is not a JSON object');
}

function text(value: unknown): string {
  if (typeof value !== 'string' || value === '') throw odd('left out a field');
  return value;
}

function orderOf(url: string, words: string): AcmeOrder {
  const { status, authorizations, finalize, certificate, error } = record(words);
  if (!Array.isArray(authorizations)) throw odd('left out a field');
  return {
    url,
    status: text(status),
    authorizations: authorizations.map(text),
    finalize: text(finalize),
    certificate: typeof certificate === 'string' ? certificate : null,
    error,
  };
}
