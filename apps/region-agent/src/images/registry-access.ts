import { type Readable } from 'node:stream';
import { type SafeClient, SafeNetRefused, type SafeResponse } from '@nebo/safe-net';
import { Redactor } from '../log/redact.js';
import { ImageFailure, told } from './image-failure.js';
import { basicOf, type Login, loginVariables } from './registry-login.js';

/** A small answer, milliseconds. */
export const documentMs = 30_000;
/** What refusals that a registry sends are read up to, bytes. */
export const maxRefusal = 64 * 1024;

type Answer = SafeResponse<Readable>;

interface AccessParts {
  client: SafeClient;
  signal: AbortSignal;
  login: Login | null;
}

/**
 * How a registry is asked so that it answers: with a token of the place that it names, for anybody or for a login, or with the login
 * itself at each request. The client takes neither along to another origin.
 */
export class RegistryAccess {
  private authorization: string | null = null;
  private readonly redactor: Redactor;

  constructor(
    private readonly host: string,
    private readonly repository: string,
    private readonly parts: AccessParts,
  ) {
    this.redactor = new Redactor(parts.login === null ? [] : [parts.login.password]);
  }

  get headers(): Record<string, string> {
    return this.authorization === null ? {} : { authorization: this.authorization };
  }

  /** What to do about a refusal. */
  get advice(): string {
    return this.parts.login === null
      ? `Either it is not there or it is private: the variables ${loginVariables} of an app say how it logs in.`
      : `Either it is not there or the login of the app's variables (${loginVariables}) may not read it.`;
  }

  /** A registry's text, whole, without the password in any form: a cut could leave a part of one. */
  redact(text: string): string {
    return this.redactor.redact(text);
  }

  /**
   * Does what a registry's challenge (`WWW-Authenticate`) asks for.
   * @throws ImageFailure, Passing
   */
  async meet(challenge: string, what: string): Promise<void> {
    const { login } = this.parts;
    if (/^bearer\s/i.test(challenge)) {
      this.authorization = `Bearer ${await this.fetchToken(challenge, what)}`;
    } else {
      if (login === null) throw this.refused(what, 'it wants a user name and password');
      this.authorization = basicOf(login);
    }
  }

  private refused(what: string, why: string): ImageFailure {
    const whom = this.parts.login === null ? 'to everybody' : 'to the login';
    return new ImageFailure(`The registry does not give ${what} ${whom}: ${why}. ${this.advice}`);
  }

  /** Asks for a token that reads this repository, as the registry's challenge says. */
  private async fetchToken(challenge: string, what: string): Promise<string> {
    const said = new Map(
      [...challenge.matchAll(/(?<![a-z_])([a-z_]+)="([^"]*)"/gi)].map(([, name, value]) => [
        name!.toLowerCase(),
        value!,
      ]),
    );
    const realm = said.get('realm') ?? '';
    if (!URL.canParse(realm)) throw this.refused(what, 'it names no place that gives tokens');
    const url = new URL(realm);
    if (said.has('service')) url.searchParams.set('service', said.get('service')!);
    url.searchParams.set('scope', `repository:${this.repository}:pull`);
    const answer = await this.askForToken(url);
    if (answer.status === 429 || answer.status >= 500)
      throw new Passing(
        `${url.host}, which gives tokens for ${this.host}, answers ${answer.status}.`,
        retryAfter(answer),
      );
    const text = await collect(answer.body);
    if (answer.status !== 200)
      throw this.refused(what, `${url.host} gives no token for it (${answer.status})`);
    try {
      const { token, access_token } = JSON.parse(text.toString('utf8')) as Record<string, unknown>;
      const found = token ?? access_token;
      if (typeof found === 'string' && /^[\x21-\x7e]{1,16384}$/.test(found)) return found;
    } catch {
      // Said below.
    }
    throw this.refused(what, `${url.host} answers without a token`);
  }

  private async askForToken(url: URL): Promise<Answer> {
    const { client, signal, login } = this.parts;
    const headers: Record<string, string> = login === null ? {} : { authorization: basicOf(login) };
    try {
      return await client.stream(url, { signal, headers, maxBytes: maxRefusal, timeoutMs: documentMs });
    } catch (error) {
      if (error instanceof SafeNetRefused)
        throw new ImageFailure(
          `The registry ${this.host} sends for a token to ${told(url.host)}, which cannot be asked: ${error.message}.`,
        );
      throw error;
    }
  }
}

/** A refusal that may be gone a moment later. */
export class Passing extends Error {
  constructor(
    message: string,
    /** Milliseconds that the registry asked for. */
    readonly afterMs: number | null,
  ) {
    super(message);
  }
}

export const header = ({ headers }: Answer, name: string): string => {
  const value = headers[name];
  return (Array.isArray(value) ? value[0] : value) ?? '';
};

/** `Retry-After` as seconds or a date. */
export function retryAfter(answer: Answer): number | null {
  const text = header(answer, 'retry-after');
  if (text === '') return null;
  const ms = /^\d{1,6}$/.test(text) ? Number(text) * 1_000 : Date.parse(text) - Date.now();
  return Number.isFinite(ms) ? Math.max(0, ms) : null;
}

export async function collect(body: Readable): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of body) parts.push(part as Buffer);
  return Buffer.concat(parts);
}
