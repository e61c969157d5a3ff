import { createSign } from 'node:crypto';
import type { SafeClient } from '@nebo/safe-net';
import { explained } from '../git-api.js';
import { type GitAddresses, GitHostError, type OAuthDialect } from '../git-host.js';
import { numberAt, textAt } from '../json.js';
import type { InstalledApp, OAuthApp } from './oauth-apps.js';

/** What a git host gives an app for a code or for an older grant. */
export interface Grant {
  token: string;
  /** What the next one is got by; null: none, or the one that was used stays. */
  refreshToken: string | null;
  /** Seconds; null: it does not run out by itself. */
  expiresInS: number | null;
}

/** One exchange at most, milliseconds; less than the time for which a renewal is claimed. */
const timeoutMs = 10_000;
const maxBytes = 256 * 1024;
/** Words of hosts for a grant or code that is over; the family of Gitea says it as `unauthorized_client`. */
const over = new Set([
  'invalid_grant',
  'bad_refresh_token',
  'bad_verification_code',
  'unauthorized_client',
  'access_denied',
]);

/** The token endpoint of one git host, spoken to as one app. Requests follow no redirects: they hold the app's secret. */
export class TokenEndpoint {
  constructor(
    private readonly client: SafeClient,
    private readonly dialect: OAuthDialect,
    private readonly addresses: GitAddresses,
    private readonly app: OAuthApp,
    private readonly redirectUri: string,
  ) {}

  /**
   * Gives a code for a grant.
   * @param verifier null: the host was shown no proof of it
   * @throws GitHostError `unauthorized` for a code that is over
   */
  trade(code: string, verifier: string | null): Promise<Grant> {
    const fields = { grant_type: 'authorization_code', code };
    return this.ask(
      verifier === null || !this.dialect.pkce ? fields : { ...fields, code_verifier: verifier },
    );
  }

  /** @throws GitHostError `unauthorized` for one that is over or revoked */
  refresh(refreshToken: string): Promise<Grant> {
    return this.ask({ grant_type: 'refresh_token', refresh_token: refreshToken });
  }

  private async ask(fields: Record<string, string>): Promise<Grant> {
    const { clientId, clientSecret, provider } = this.app;
    const form = {
      ...fields,
      client_id: clientId,
      client_secret: clientSecret,
      redirect_uri: this.redirectUri,
    };
    let answer;
    try {
      answer = await this.client.request(`${this.addresses.web}${this.dialect.tokenPath}`, {
        method: 'POST',
        headers: { accept: 'application/json', 'content-type': 'application/x-www-form-urlencoded' },
        body: new URLSearchParams(form).toString(),
        maxBytes,
        timeoutMs,
        maxRedirects: 0,
      });
    } catch (error) {
      throw explained(error);
    }
    const { status } = answer;
    if (status === 429 || status >= 500)
      throw new GitHostError('away', `the git host is in trouble (status ${status})`);
    const body = parsed(answer.body);
    // One host says errors with status 200.
    const error = textAt(body, 'error');
    const token = textAt(body, 'access_token');
    if (error === null && status >= 200 && status <= 299 && token !== null && isHeaderText(token)) {
      const expires = numberAt(body, 'expires_in');
      return {
        token,
        refreshToken: textAt(body, 'refresh_token'),
        expiresInS: expires === null || expires <= 0 ? null : expires,
      };
    }
    if (error !== null && over.has(error))
      throw new GitHostError('unauthorized', `${provider} says that the grant is over (${error})`);
    const said = error === null ? `status ${status}` : plainWord(error);
    throw new GitHostError(
      'away',
      `${provider} does not accept this installation's OAuth app (${said}): its operator has to look at it`,
    );
  }
}

/** What a header can hold. */
const isHeaderText = (text: string): boolean => /^[\x21-\x7e]+$/.test(text);

/** A word of a stranger, fit for a sentence. */
export const plainWord = (text: string): string => text.replace(/[^\w .:-]/g, '').slice(0, 80);

function parsed(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return null;
  }
}

/**
 * What an app that is installed in accounts proves itself by: a signed claim of ten minutes (RS256).
 * @param now milliseconds since 1970; the claim is dated back a minute, for a host whose clock is behind
 * @throws GitHostError when the operator's key is none
 */
export function appToken({ id, privateKey }: InstalledApp, now = Date.now()): string {
  const seconds = Math.floor(now / 1_000);
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const head = `${part({ alg: 'RS256', typ: 'JWT' })}.${part({ iat: seconds - 60, exp: seconds + 540, iss: id })}`;
  try {
    return `${head}.${createSign('RSA-SHA256').update(head).sign(privateKey, 'base64url')}`;
  } catch (error) {
    throw new GitHostError(
      'away',
      "the key of this installation's app is none: its operator has to look at it",
      {
        cause: error,
      },
    );
  }
}
