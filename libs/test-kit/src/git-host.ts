import { spawn } from 'node:child_process';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { answerApi, type ApiAnswer, apiPrefix } from './git-host-api.js';
import { GitHostOAuth } from './git-host-oauth.js';
import { type GitDialect, pingOf, pushesOf, type SentPayload } from './git-host-payloads.js';
import { git, gitEnv, type HostedRepository, Repositories, type SetStatus } from './git-repositories.js';
import { noteLive } from './parts.js';

/** A delivery that the host has made. */
export interface MadeDelivery extends SentPayload {
  url: string;
  /** Null: nobody answered. */
  status: number | null;
  answer: string;
}

/** Settings of a git host. */
export interface GitHostOptions {
  dialect?: GitDialect;
  login?: string;
  /** Sends webhooks of pushes; false: only when told to. Default true. */
  delivers?: boolean;
}

/** How to push. */
export interface PushOptions {
  branch?: string;
  files?: Record<string, string | null>;
  /** Submodules: the commit that stands at a path. */
  links?: Record<string, string>;
  message?: string;
  force?: boolean;
}

const zero = '0'.repeat(40);

/**
 * A git host on this machine: repositories over git's own smart HTTP (`git http-backend`), the part of the dialect's API that
 * Nebo uses, tokens, webhooks and commit statuses. What it says of a push is read from the repository.
 */
export class GitHostPart {
  readonly dialect: GitDialect;
  readonly login: string;
  /** Tokens that are taken. */
  readonly tokens = new Set(['token-of-ann']);
  /** Its OAuth apps, in the same dialect. */
  readonly oauth: GitHostOAuth;
  /** Rights that the tokens lack: answers 403 to hooks or statuses. */
  readonly forbidden = new Set<'hooks' | 'statuses'>();
  readonly deliveries: MadeDelivery[] = [];
  /** Requests of the API as `METHOD path`. */
  readonly asked: string[] = [];
  /** Answers every API request with this status as long as it is set. */
  trouble: number | null = null;
  delivers: boolean;
  private readonly server = createServer((request, response) => {
    this.handle(request, response).catch((error: Error) => {
      if (!response.headersSent) response.writeHead(500);
      response.end(error.message);
    });
  });
  private port = 0;
  private ids = 100;
  /** Git requests with the deliveries that follow them. */
  private readonly pending = new Set<Promise<void>>();
  private forget: () => void = () => undefined;

  private constructor(
    private readonly repositories: Repositories,
    { dialect = 'gitea', login = 'ann', delivers = true }: GitHostOptions,
  ) {
    this.dialect = dialect;
    this.login = login;
    this.delivers = delivers;
    this.oauth = new GitHostOAuth(dialect, this.tokens, login);
  }

  static async start(options: GitHostOptions = {}): Promise<GitHostPart> {
    const host = new GitHostPart(await Repositories.make(), options);
    await new Promise<void>((resolve) => host.server.listen(0, '127.0.0.1', () => resolve()));
    host.port = (host.server.address() as AddressInfo).port;
    host.forget = noteLive(() => host.stop());
    return host;
  }

  /** `host:port`, for lists of allowed hosts. */
  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  get url(): string {
    return `http://${this.address}`;
  }

  /** Where the dialect's API begins. */
  get api(): string {
    return `${this.url}${apiPrefix[this.dialect]}`;
  }

  get token(): string {
    return 'token-of-ann';
  }

  createRepository(fullName: string, { isPrivate = true } = {}): Promise<HostedRepository> {
    return this.repositories.create(fullName, isPrivate);
  }

  /** @throws Error for an unknown one */
  repository(fullName: string): HostedRepository {
    const found = this.repositories.find(fullName);
    if (!found) throw new Error(`no repository ${fullName}`);
    return found;
  }

  statuses(fullName: string, sha: string): SetStatus[] {
    return this.repository(fullName).statuses.filter((status) => status.sha === sha);
  }

  /** Commits files and pushes them over HTTP as a user does. @returns the commit's hash */
  async push(fullName: string, options: PushOptions = {}): Promise<string> {
    const { branch = 'main', files = {}, links = {}, message = 'A change', force = false } = options;
    const repository = this.repository(fullName);
    const sha = await this.repositories.commit(repository, files, message, links);
    await this.pushRef(fullName, `HEAD:refs/heads/${branch}`, force);
    return sha;
  }

  /** Pushes anything: `:refs/heads/x` deletes, `HEAD:refs/tags/v1` tags. Resolves when its deliveries are made. */
  async pushRef(fullName: string, refspec: string, force = false): Promise<void> {
    const { work } = this.repository(fullName);
    const remote = `http://ann:${[...this.tokens][0]}@${this.address}/${fullName}.git`;
    await git(work, ['push', '-q', ...(force ? ['--force'] : []), remote, refspec]);
    await Promise.allSettled(this.pending);
  }

  /** Sends the dialect's test delivery to all webhooks of a repository. */
  async ping(fullName: string): Promise<void> {
    const repository = this.repository(fullName);
    for (const hook of repository.hooks)
      await this.post(hook.url, pingOf(this.dialect, repository, hook.secret, this.url));
  }

  /** Sends a delivery again, byte by byte. */
  repeat(delivery: MadeDelivery): Promise<MadeDelivery> {
    return this.post(delivery.url, delivery);
  }

  async stop(): Promise<void> {
    this.forget();
    this.server.closeAllConnections();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
    await this.repositories.remove();
  }

  private async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url!, this.url);
    const match = /^\/(?:project\/)?([^/]+(?:\/[^/]+)+?)\.git(\/.*)$/.exec(decodeURIComponent(url.pathname));
    if (match) {
      const work = this.serveGit(request, response, match[1]!, match[2]!, url.search.slice(1));
      this.pending.add(work);
      return work.finally(() => this.pending.delete(work));
    }
    const body = await buffer(request);
    this.asked.push(`${request.method} ${url.pathname}${url.search}`);
    const given = (request.headers.authorization ?? '').replace(/^(Bearer|token) /, '');
    const grant = await this.oauth.answer(request.method!, url, body, given);
    if (grant === 'lost') {
      request.socket.destroy();
      return;
    }
    const answer =
      grant ??
      (this.trouble !== null ? { status: this.trouble } : await this.answer(request, url, body, given));
    const text = answer.body === undefined ? '' : JSON.stringify(answer.body);
    response.writeHead(answer.status, { 'content-type': 'application/json', ...answer.headers }).end(text);
  }

  private async answer(request: IncomingMessage, url: URL, body: Buffer, given: string): Promise<ApiAnswer> {
    return answerApi({
      dialect: this.dialect,
      method: request.method!,
      path: url.pathname,
      query: url.searchParams,
      body: body.length === 0 ? {} : (JSON.parse(body.toString('utf8')) as Record<string, unknown>),
      login: this.login,
      known: this.tokens.has(given),
      hasToken: given !== '',
      forbidden: this.forbidden,
      repositories: this.repositories,
      nextId: () => String((this.ids += 1)),
      webUrl: this.url,
    });
  }

  private async serveGit(
    request: IncomingMessage,
    response: ServerResponse,
    fullName: string,
    path: string,
    query: string,
  ): Promise<void> {
    const repository = this.repositories.find(fullName);
    const basic = /^Basic (.+)$/.exec(request.headers.authorization ?? '')?.[1] ?? '';
    const password = Buffer.from(basic, 'base64').toString().split(':').slice(1).join(':');
    const writes = path.endsWith('git-receive-pack') || query.includes('git-receive-pack');
    const known = this.tokens.has(password);
    if (!known && (writes || basic !== '' || repository?.isPrivate !== false)) {
      response.writeHead(401, { 'www-authenticate': 'Basic realm="git"' }).end();
      return;
    }
    if (!repository) {
      response.writeHead(404).end();
      return;
    }
    const pushed = path.endsWith('git-receive-pack');
    const before = pushed ? await repository.refs() : new Map<string, string>();
    await backend(request, response, repository.dir, path, query);
    if (pushed && this.delivers) await this.tell(repository, before);
  }

  /** What a push changed goes to all webhooks, as the hosts do: after the push, in order. */
  private async tell(repository: HostedRepository, before: ReadonlyMap<string, string>): Promise<void> {
    const after = await repository.refs();
    for (const ref of new Set([...before.keys(), ...after.keys()])) {
      const change = { ref, before: before.get(ref) ?? zero, after: after.get(ref) ?? zero };
      if (change.before === change.after) continue;
      for (const hook of repository.hooks.filter(({ active }) => active)) {
        const payloads = await pushesOf(this.dialect, repository, change, hook.secret, this.url);
        for (const payload of payloads) await this.post(hook.url, payload);
      }
    }
  }

  private async post(url: string, payload: SentPayload): Promise<MadeDelivery> {
    const made: MadeDelivery = { ...payload, url, status: null, answer: '' };
    this.deliveries.push(made);
    try {
      const answer = await fetch(url, { method: 'POST', headers: payload.headers, body: payload.body });
      made.status = answer.status;
      made.answer = await answer.text();
    } catch (error) {
      made.answer = String(error);
    }
    return made;
  }
}

/** One request through `git http-backend` (a CGI program that comes with git). */
async function backend(
  request: IncomingMessage,
  response: ServerResponse,
  dir: string,
  path: string,
  query: string,
): Promise<void> {
  const child = spawn('git', ['http-backend'], {
    stdio: ['pipe', 'pipe', 'ignore'],
    env: {
      ...gitEnv,
      GIT_PROJECT_ROOT: dir,
      GIT_HTTP_EXPORT_ALL: '1',
      PATH_INFO: path,
      REQUEST_METHOD: request.method!,
      QUERY_STRING: query,
      CONTENT_TYPE: request.headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: String(request.headers['content-encoding'] ?? ''),
      GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
      REMOTE_USER: 'ann',
      REMOTE_ADDR: '127.0.0.1',
    },
  });
  child.stdin.on('error', () => undefined);
  request.pipe(child.stdin);
  const out = await buffer(child.stdout);
  const end = out.indexOf('\r\n\r\n');
  let status = 200;
  for (const line of out.subarray(0, end).toString('latin1').split('\r\n')) {
    const [name, ...value] = line.split(':');
    if (name === 'Status') status = Number.parseInt(value.join(':'), 10);
    else if (name) response.setHeader(name, value.join(':').trim());
  }
  response.writeHead(status).end(out.subarray(end + 4));
}
