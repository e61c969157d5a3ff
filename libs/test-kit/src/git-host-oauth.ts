import { createHash, createVerify } from 'node:crypto';
import type { ApiAnswer } from './git-host-api.js';
import type { GitDialect } from './git-host-payloads.js';

interface OAuthWords {
  authorize: string;
  token: string;
  /** Seconds that a token lives; null: for ever, and then there is nothing to renew it by. */
  expiresInS: number | null;
  /** What is said of a code or grant that is over, and with which status. */
  over: string;
  overStatus: number;
  badClient: string;
}

const family = { authorize: '/login/oauth/authorize', token: '/login/oauth/access_token' };
const words: Readonly<Record<GitDialect, OAuthWords | null>> = {
  // Errors come with status 200; tokens of OAuth apps live for ever.
  github: {
    ...family,
    expiresInS: null,
    over: 'bad_verification_code',
    overStatus: 200,
    badClient: 'incorrect_client_credentials',
  },
  gitlab: {
    authorize: '/oauth/authorize',
    token: '/oauth/token',
    expiresInS: 7_200,
    over: 'invalid_grant',
    overStatus: 400,
    badClient: 'invalid_client',
  },
  gitea: {
    ...family,
    expiresInS: 3_600,
    over: 'unauthorized_client',
    overStatus: 400,
    badClient: 'invalid_client',
  },
  gitverse: {
    ...family,
    expiresInS: 3_600,
    over: 'unauthorized_client',
    overStatus: 400,
    badClient: 'invalid_client',
  },
  gitflic: null,
};

interface Code {
  redirectUri: string;
  challenge: string | null;
}

/** An app that is installed in the host's account. */
export interface InstalledAppOfHost {
  appId: string;
  slug: string;
  /** PEM. */
  publicKey: string;
  installationId: string;
}

/**
 * The OAuth side of a git host in its dialect: the page where a person agrees (who asks is taken to be signed in and to
 * agree), the token endpoint, installations. It does wrong on command.
 */
export class GitHostOAuth {
  readonly clientId = 'nebo-client';
  readonly clientSecret = 'client-secret-of-nebo';
  /** The person says no. */
  denies = false;
  /** Sends people back with another state. */
  otherState: string | null = null;
  /** Seconds that tokens live; undefined: as the dialect has it. */
  expiresInS: number | null | undefined;
  /** A used refresh token, and the token it renewed, are worth nothing from that moment (GitLab); false: they stay (Gitea). */
  strict: boolean;
  /** Answers of the token endpoint that are made and then not sent: what a crash in between looks like. */
  losesAnswers = 0;
  /** Milliseconds before the token endpoint answers. */
  slowMs = 0;
  /** Answers the token endpoint with this status as long as it is set. */
  trouble: number | null = null;
  installed: InstalledAppOfHost | null = null;
  /** What was asked of the token endpoint, by grant type. */
  readonly asked: string[] = [];
  private readonly codes = new Map<string, Code>();
  /** Refresh tokens that are taken, with the token that each came with. */
  private readonly grants = new Map<string, string>();
  private count = 0;

  constructor(
    readonly dialect: GitDialect,
    private readonly tokens: Set<string>,
    private readonly login: string,
  ) {
    this.strict = dialect === 'gitlab';
  }

  /** The person takes back what they allowed. */
  revoke(): void {
    for (const token of this.tokens) if (token.startsWith('oauth-')) this.tokens.delete(token);
    this.grants.clear();
  }

  /** Tokens that were given run out; what they are renewed by stays. */
  expire(): void {
    for (const token of this.tokens) if (token.startsWith('oauth-')) this.tokens.delete(token);
  }

  /** @returns null when the path is none of OAuth's; `lost`: the connection is to be broken off */
  async answer(
    method: string,
    url: URL,
    body: Buffer,
    authorization: string,
  ): Promise<ApiAnswer | 'lost' | null> {
    const said = words[this.dialect];
    if (said === null) return null;
    if (method === 'GET' && url.pathname === said.authorize) return this.authorize(url.searchParams);
    if (method === 'POST' && url.pathname === said.token) {
      if (this.slowMs > 0) await new Promise((resolve) => setTimeout(resolve, this.slowMs));
      if (this.trouble !== null) return { status: this.trouble };
      const answer = this.token(new URLSearchParams(body.toString('utf8')), said);
      if (this.losesAnswers === 0) return answer;
      this.losesAnswers -= 1;
      return 'lost';
    }
    return this.installed === null ? null : this.installation(method, url.pathname, authorization);
  }

  private authorize(query: URLSearchParams): ApiAnswer {
    const back = query.get('redirect_uri');
    if (query.get('client_id') !== this.clientId || back === null)
      return { status: 400, body: { error: 'invalid_client' } };
    const to = new URL(back);
    to.searchParams.set('state', this.otherState ?? query.get('state') ?? '');
    if (this.denies) {
      to.searchParams.set('error', 'access_denied');
      to.searchParams.set('error_description', 'The <b>person</b> said no');
    } else {
      const code = `code-${(this.count += 1)}`;
      this.codes.set(code, { redirectUri: back, challenge: query.get('code_challenge') });
      to.searchParams.set('code', code);
    }
    return { status: 302, headers: { location: to.href } };
  }

  private token(form: URLSearchParams, said: OAuthWords): ApiAnswer {
    const type = form.get('grant_type') ?? '';
    this.asked.push(type);
    const no = (error: string, status = said.overStatus): ApiAnswer => ({
      status,
      body: { error, error_description: 'no' },
    });
    if (form.get('client_id') !== this.clientId || form.get('client_secret') !== this.clientSecret)
      return no(said.badClient, said.overStatus === 200 ? 200 : 401);
    if (type === 'refresh_token') {
      const refresh = form.get('refresh_token') ?? '';
      const old = this.grants.get(refresh);
      if (old === undefined) return no(said.over);
      if (this.strict) {
        this.grants.delete(refresh);
        this.tokens.delete(old);
      }
      return this.give(said);
    }
    const code = this.codes.get(form.get('code') ?? '');
    this.codes.delete(form.get('code') ?? '');
    if (type !== 'authorization_code' || code === undefined) return no(said.over);
    const shown = createHash('sha256')
      .update(form.get('code_verifier') ?? '')
      .digest('base64url');
    if (
      code.redirectUri !== form.get('redirect_uri') ||
      (code.challenge !== null && code.challenge !== shown)
    )
      return no(said.over);
    return this.give(said);
  }

  private give({ expiresInS }: OAuthWords): ApiAnswer {
    const token = `oauth-${(this.count += 1)}`;
    this.tokens.add(token);
    const lives = this.expiresInS === undefined ? expiresInS : this.expiresInS;
    const body: Record<string, unknown> = { access_token: token, token_type: 'bearer', scope: '' };
    if (lives !== null) {
      const refresh = `refresh-${this.count}`;
      this.grants.set(refresh, token);
      Object.assign(body, { expires_in: lives, refresh_token: refresh });
    }
    return { status: 200, body };
  }

  /** What GitHub answers about apps that are installed in accounts. */
  private installation(method: string, path: string, authorization: string): ApiAnswer | null {
    const { appId, publicKey, installationId, slug } = this.installed!;
    if (method === 'GET' && path === `/github-apps/${slug}/installations/new`)
      return { status: 200, body: {} };
    if (method === 'GET' && path === '/api/v3/user/installations') {
      const mine = { id: Number(installationId), app_id: Number(appId), account: { login: this.login } };
      return this.tokens.has(authorization)
        ? { status: 200, body: { total_count: 1, installations: [mine] } }
        : { status: 401, body: {} };
    }
    const wanted = /^\/api\/v3\/app\/installations\/(\d+)\/access_tokens$/.exec(path);
    if (method !== 'POST' || wanted === null) return null;
    if (!isSignedBy(authorization, appId, publicKey)) return { status: 401, body: {} };
    if (wanted[1] !== installationId) return { status: 404, body: {} };
    const token = `oauth-${(this.count += 1)}`;
    this.tokens.add(token);
    this.asked.push('installation');
    const lives = this.expiresInS ?? 3_600;
    return { status: 201, body: { token, expires_at: new Date(Date.now() + lives * 1_000).toISOString() } };
  }
}

function isSignedBy(text: string, appId: string, publicKey: string): boolean {
  const [head = '', claims = '', signature = ''] = text.split('.');
  if (signature === '') return false;
  const { iss, exp, iat } = JSON.parse(Buffer.from(claims, 'base64url').toString()) as Record<
    string,
    unknown
  >;
  const now = Date.now() / 1_000;
  if (iss !== appId || typeof exp !== 'number' || typeof iat !== 'number') return false;
  if (exp < now || exp - iat > 600 || iat > now) return false;
  return createVerify('RSA-SHA256').update(`${head}.${claims}`).verify(publicKey, signature, 'base64url');
}
