import { type SafeClient, SafeNetFailed, SafeNetRefused } from '@nebo/safe-net';
import { GitHostError } from './git-host.js';

/** What a git host answered. */
export interface GitAnswer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  /** Parsed JSON, or null. */
  body: unknown;
}

/** A token that may run out. */
export interface TokenSource {
  /** The present one, renewed when it is about to run out. @throws GitHostError */
  token(): Promise<string>;
  /** Another one, since the host has refused this; null: there is none. @throws GitHostError */
  renewed(refused: string): Promise<string | null>;
}

/** Largest answer that is read, bytes; lists are asked for page by page. */
const maxBytes = 5 * 1024 * 1024;
/** One exchange at most, milliseconds: a request of our own API may wait for it. */
const timeoutMs = 10_000;

/** The API of one git host with one token. Requests go nowhere but to public addresses and what the operator allows. */
export class GitApi {
  constructor(
    private readonly client: SafeClient,
    private readonly address: string,
    private readonly headers: (token: string | null) => Record<string, string>,
    private readonly credential: string | TokenSource | null,
  ) {}

  /** @throws GitHostError */
  get(path: string): Promise<GitAnswer> {
    return this.send('GET', path);
  }

  /** @param path from the API's address on @throws GitHostError for every status that is no success */
  async send(method: string, path: string, body?: unknown): Promise<GitAnswer> {
    const { credential } = this;
    if (credential === null || typeof credential === 'string')
      return this.exchange(credential, method, path, body);
    const token = await credential.token();
    try {
      return await this.exchange(token, method, path, body);
    } catch (error) {
      // It may have run out before its time: the host's clock, or somebody renewed it elsewhere.
      if (!(error instanceof GitHostError) || error.failure !== 'unauthorized') throw error;
      const other = await credential.renewed(token);
      if (other === null) throw error;
      return this.exchange(other, method, path, body);
    }
  }

  private async exchange(
    token: string | null,
    method: string,
    path: string,
    body: unknown,
  ): Promise<GitAnswer> {
    let answer;
    try {
      answer = await this.client.request(`${this.address}${path}`, {
        method,
        headers: {
          accept: 'application/json',
          ...this.headers(token),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        maxBytes,
        timeoutMs,
        maxRedirects: 3,
      });
    } catch (error) {
      throw explained(error);
    }
    const { status, headers } = answer;
    if (status < 200 || status > 299) throw refusal(status, headers);
    return { status, headers, body: parsed(answer.body) };
  }
}

function parsed(body: Buffer): unknown {
  if (body.length === 0) return null;
  try {
    return JSON.parse(body.toString('utf8'));
  } catch (error) {
    throw new GitHostError('unexpected', 'the git host answered with something that is not JSON', {
      cause: error,
    });
  }
}

/** What the way to a git host said no to, as the host's own failures are said. @throws what is neither */
export function explained(error: unknown): GitHostError {
  const cause = { cause: error };
  if (error instanceof SafeNetRefused)
    return new GitHostError('refused', `the address of the git host is not allowed: ${error.message}`, cause);
  if (error instanceof SafeNetFailed)
    return new GitHostError('away', `the git host does not answer: ${error.message}`, cause);
  throw error;
}

function refusal(status: number, headers: GitAnswer['headers']): GitHostError {
  const spent = status === 429 || (status === 403 && headers['x-ratelimit-remaining'] === '0');
  if (spent) return new GitHostError('away', 'the git host asks to come later: too many requests');
  if (status === 401)
    return new GitHostError('unauthorized', 'the git host does not take the token any more');
  if (status === 403) return new GitHostError('forbidden', 'the token lacks a right at the git host');
  if (status === 404) return new GitHostError('not_found', 'the git host knows no such repository');
  if (status >= 500) return new GitHostError('away', `the git host is in trouble (status ${status})`);
  return new GitHostError('unexpected', `the git host answered with status ${status}`);
}
