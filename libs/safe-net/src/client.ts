import { Transform, type Readable } from 'node:stream';
import { type ConnectionOptions } from 'node:tls';
import { Client, type Dispatcher } from 'undici';
import { dialChecked, startTls, type DialOptions, type Lookup, type TcpDial } from './dial.js';
import { SafeNetFailed, SafeNetRefused } from './errors.js';
import { checkUrl, type AllowList, type CheckedUrl } from './policy.js';

/** Settings of a client; `lookup`, `dial` and `ca` exist for tests and for operators with a CA of their own. */
export interface SafeClientOptions {
  /** Hosts allowed although they are not public (`parseAllowList(process.env.NEBO_SAFE_NET_ALLOW)`). */
  allow?: AllowList;
  /** Ports for everybody else; default 80 and 443. */
  ports?: readonly number[];
  httpsOnly?: boolean;
  /** Own service names and suffixes that nobody may ask for. */
  refuseNames?: readonly string[];
  lookup?: Lookup;
  dial?: TcpDial;
  ca?: ConnectionOptions['ca'];
  userAgent?: string;
}

/** One request. */
export interface SafeRequest {
  method?: string;
  headers?: Readonly<Record<string, string>>;
  /** Sent again on 307 and 308, hence no streams. */
  body?: string | Buffer;
  signal?: AbortSignal;
  /** Cap of the answer's body in bytes, as transferred (no decompression happens). Default 10 MiB. */
  maxBytes?: number;
  /** Cap of the whole exchange in milliseconds: DNS, redirects and body included. Default 15,000. */
  timeoutMs?: number;
  /** Default 5; 0 returns a redirect as it is. */
  maxRedirects?: number;
  httpsOnly?: boolean;
}

/** An answer; `url` is where it came from after redirects. */
export interface SafeResponse<B> {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: B;
  url: string;
  redirects: number;
}

/** Outbound HTTP that reaches public addresses only. */
export interface SafeClient {
  /**
   * Sends a request and reads the answer; any status is an answer.
   * @throws SafeNetRefused (a rule), SafeNetFailed (dns, connect, timeout, too_large, protocol, aborted)
   */
  request(url: string | URL, request?: SafeRequest): Promise<SafeResponse<Buffer>>;
  /** The same with the body as a stream; the caps destroy it with SafeNetFailed. The caller must consume or destroy it. */
  stream(url: string | URL, request?: SafeRequest): Promise<SafeResponse<Readable>>;
}

/** Framing and routing are ours; a caller who sets these means to confuse somebody behind us. */
const ownHeaders = new Set([
  'host',
  'connection',
  'content-length',
  'transfer-encoding',
  'upgrade',
  'expect',
  'te',
  'trailer',
  'keep-alive',
  'proxy-authorization',
  'proxy-connection',
]);

/** What goes along to another origin. All else may be a secret: PRIVATE-TOKEN and X-Api-Key as much as Authorization. */
const travelling = new Set(['accept', 'accept-language', 'content-type', 'user-agent']);

const redirectStatus = new Set([301, 302, 303, 307, 308]);

interface Hop {
  target: CheckedUrl;
  method: string;
  headers: Record<string, string>;
  body: string | Buffer | undefined;
}

/** Makes a client. It keeps no connections: each hop is resolved, checked and dialled on its own. */
export function createSafeClient(options: SafeClientOptions = {}): SafeClient {
  const stream = async (url: string | URL, request: SafeRequest = {}): Promise<SafeResponse<Readable>> => {
    const limit = request.timeoutMs ?? 15_000;
    const deadline = AbortSignal.timeout(limit);
    const signal = request.signal === undefined ? deadline : AbortSignal.any([deadline, request.signal]);
    try {
      return await follow(url, request, options, signal, (error) => explain(error, signal, deadline, limit));
    } catch (error) {
      throw explain(error, signal, deadline, limit);
    }
  };
  return {
    stream,
    async request(url, request = {}) {
      const { body, ...answer } = await stream(url, request);
      const parts: Buffer[] = [];
      for await (const part of body) parts.push(part as Buffer);
      return { ...answer, body: Buffer.concat(parts) };
    },
  };
}

async function follow(
  url: string | URL,
  request: SafeRequest,
  options: SafeClientOptions,
  signal: AbortSignal,
  explained: (error: unknown) => Error,
): Promise<SafeResponse<Readable>> {
  const policy = { ...options, httpsOnly: request.httpsOnly ?? options.httpsOnly ?? false };
  const maxRedirects = request.maxRedirects ?? 5;
  let hop: Hop = {
    target: checkUrl(url, policy),
    method: (request.method ?? 'GET').toUpperCase(),
    headers: checkHeaders(request.headers ?? {}, options.userAgent ?? 'nebo'),
    body: request.body,
  };
  for (let redirects = 0; ; redirects += 1) {
    const { client, response } = await send(hop, options, signal);
    const location = response.headers['location'];
    if (maxRedirects === 0 || !redirectStatus.has(response.statusCode) || typeof location !== 'string') {
      const body = capped(response.body, request.maxBytes ?? 10 * 1024 * 1024, client, explained);
      return {
        status: response.statusCode,
        headers: response.headers,
        body,
        url: hop.target.url.href,
        redirects,
      };
    }
    response.body.on('error', () => undefined).destroy();
    client.destroy().catch(() => undefined);
    if (redirects >= maxRedirects)
      throw new SafeNetRefused('redirects', `more than ${maxRedirects} redirects`);
    hop = nextHop(hop, response.statusCode, location, policy);
  }
}

/** The request after a redirect: checked like the first one, and with no secret for another origin. */
function nextHop(
  hop: Hop,
  status: number,
  location: string,
  policy: SafeClientOptions & { httpsOnly: boolean },
): Hop {
  let url: URL;
  try {
    url = new URL(location, hop.target.url);
  } catch {
    throw new SafeNetRefused('invalid_url', 'the server redirects to something that is not a URL');
  }
  const target = checkUrl(url, policy);
  const toGet = status === 303 ? hop.method !== 'HEAD' : status < 303 && hop.method === 'POST';
  const sameOrigin = url.origin === hop.target.url.origin;
  const headers = Object.fromEntries(
    Object.entries(hop.headers).filter(
      ([name]) => (sameOrigin || travelling.has(name)) && !(toGet && name.startsWith('content-')),
    ),
  );
  return { target, method: toGet ? 'GET' : hop.method, headers, body: toGet ? undefined : hop.body };
}

function checkHeaders(headers: Readonly<Record<string, string>>, userAgent: string): Record<string, string> {
  const checked: Record<string, string> = { 'user-agent': userAgent };
  for (const [name, value] of Object.entries(headers)) {
    const lower = name.toLowerCase();
    if (ownHeaders.has(lower) || lower.startsWith('proxy-')) {
      throw new SafeNetRefused('header', `the header ${lower} cannot be set`);
    }
    checked[lower] = value;
  }
  return checked;
}

async function send(
  hop: Hop,
  options: SafeClientOptions,
  signal: AbortSignal,
): Promise<{ client: Client; response: Dispatcher.ResponseData }> {
  const { url, host, port, allowed } = hop.target;
  const dialOptions: DialOptions = options;
  const client = new Client(url.origin, {
    // undici never sees a name to resolve: it is handed the connection to the checked address.
    connect: (_target, done) => {
      dialChecked(host, port, allowed, dialOptions, signal)
        .then((socket) =>
          url.protocol === 'https:'
            ? startTls(socket, host, options.ca ? { ca: options.ca } : {}, signal)
            : socket,
        )
        .then(
          (socket) => done(null, socket),
          (error: Error) => done(error, null),
        );
    },
    // The deadline is the signal's, for all phases together.
    headersTimeout: 0,
    bodyTimeout: 0,
    pipelining: 1,
    maxHeaderSize: 32 * 1024,
  });
  try {
    const response = await client.request({
      path: url.pathname + url.search,
      method: hop.method as Dispatcher.HttpMethod,
      headers: hop.headers,
      body: hop.body ?? null,
      signal,
    });
    return { client, response };
  } catch (error) {
    client.destroy().catch(() => undefined);
    throw error;
  }
}

/** Passes at most `limit` bytes on, and closes the connection at the end whichever way it comes. */
function capped(
  body: Readable,
  limit: number,
  client: Client,
  explained: (error: unknown) => Error,
): Readable {
  let seen = 0;
  const tooLarge = () => new SafeNetFailed('too_large', `the answer is larger than ${limit} bytes`);
  const gate = new Transform({
    transform(part: Buffer, _encoding, done) {
      seen += part.length;
      if (seen > limit) done(tooLarge());
      else done(null, part);
    },
  });
  gate.on('close', () => {
    body.destroy();
    client.destroy().catch(() => undefined);
  });
  body.on('error', (error) => gate.destroy(explained(error)));
  return body.pipe(gate);
}

/** Turns whatever undici threw into one of the two typed errors. */
function explain(error: unknown, signal: AbortSignal, deadline: AbortSignal, limit: number): Error {
  if (error instanceof SafeNetRefused || error instanceof SafeNetFailed) return error;
  if (deadline.aborted) return new SafeNetFailed('timeout', `no complete answer within ${limit} ms`, error);
  if (signal.aborted) return new SafeNetFailed('aborted', 'the request was aborted', error);
  const cause = (error as { cause?: unknown }).cause;
  if (cause instanceof SafeNetRefused || cause instanceof SafeNetFailed) return cause;
  return new SafeNetFailed('protocol', 'the server did not answer with valid HTTP', error);
}
