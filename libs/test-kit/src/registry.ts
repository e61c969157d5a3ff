import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { sha256Digest, type TestImage } from './images.js';
import { noteLive } from './parts.js';

/** How a registry misbehaves, switched on and off while it runs. */
export interface RegistryFaults {
  /** Blobs (digests) of which only the first half comes before the connection breaks. */
  truncate: Set<string>;
  /** Blobs and manifests that come with one byte changed. */
  corrupt: Set<string>;
  /** Blobs that are longer than their manifest says. */
  lengthen: Set<string>;
  /** Milliseconds before each answer with a blob. */
  slowMs: number;
  /** Blobs are answered with a redirect to this origin, path included. */
  redirectTo: string | null;
  /** Blobs lead from one place to the next for ever. */
  endless: boolean;
  /** Answers of the next requests for manifests and blobs, before any is served. */
  next: { status: number; headers?: Record<string, string>; body?: string }[];
  /** Sends for tokens elsewhere. */
  realm: string | null;
  /** What asks for a login in place of a token. */
  basic: boolean;
}

const types = {
  index: 'application/vnd.oci.image.index.v1+json',
} as const;

/** An image registry on this machine: the reading half of the distribution protocol, with tokens. */
export class RegistryPart {
  readonly faults: RegistryFaults = {
    ...{ truncate: new Set(), corrupt: new Set(), lengthen: new Set() },
    ...{ slowMs: 0, redirectTo: null, endless: false, next: [], realm: null, basic: false },
  };
  /** Requests as `METHOD path`. */
  readonly asked: string[] = [];
  /** What they said in `Authorization`. */
  readonly authorizations: (string | undefined)[] = [];
  private readonly blobs = new Map<string, Buffer>();
  /** By `repository tag` and `repository digest`. */
  private readonly manifests = new Map<string, { bytes: Buffer; type: string }>();
  private readonly server = createServer((request, response) => {
    this.answer(request, response).catch((error: Error) => response.destroy(error));
  });
  private port = 0;
  private readonly token = 'token-for-reading';
  private forget: () => void = () => undefined;

  private constructor(
    private readonly wantsToken: boolean,
    private readonly login: string | null,
  ) {}

  /**
   * @param options `wantsToken`: whether a token has to be fetched first, as public registries want it (default true);
   *   `login`: it gives nothing to anybody else, `user:password`
   */
  static async start({
    wantsToken = true,
    login = null,
  }: { wantsToken?: boolean; login?: string | null } = {}): Promise<RegistryPart> {
    const registry = new RegistryPart(wantsToken, login);
    await new Promise<void>((resolve) => registry.server.listen(0, '127.0.0.1', () => resolve()));
    registry.port = (registry.server.address() as AddressInfo).port;
    registry.forget = noteLive(() => registry.stop());
    return registry;
  }

  /** `host:port`, for references and lists of allowed hosts. */
  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  get url(): string {
    return `http://${this.address}`;
  }

  /** Stores an image under a name; the tag is moved. @returns the reference by tag */
  push(repository: string, tag: string, image: TestImage): string {
    this.store(repository, image);
    this.manifests.set(`${repository} ${tag}`, { bytes: image.manifest, type: image.mediaType });
    return `${this.address}/${repository}:${tag}`;
  }

  /** Stores several images under one tag. @returns the digest of their index */
  pushIndex(repository: string, tag: string, images: readonly TestImage[]): string {
    const manifests = images.map((image) => {
      this.store(repository, image);
      const platform = { os: 'linux', architecture: image.architecture };
      return { mediaType: image.mediaType, digest: image.digest, size: image.manifest.length, platform };
    });
    const bytes = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: types.index, manifests }));
    return this.putManifest(repository, tag, bytes, types.index);
  }

  /** Stores any bytes as a manifest. @returns their digest */
  putManifest(repository: string, tag: string, bytes: Buffer, type: string): string {
    const digest = sha256Digest(bytes);
    for (const name of [tag, digest]) this.manifests.set(`${repository} ${name}`, { bytes, type });
    return digest;
  }

  /** Forgets a repository with all that it has. */
  remove(repository: string): void {
    for (const key of this.manifests.keys()) if (key.startsWith(`${repository} `)) this.manifests.delete(key);
  }

  async stop(): Promise<void> {
    this.forget();
    this.server.closeAllConnections();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
  }

  private store(repository: string, image: TestImage): void {
    for (const { digest, bytes } of image.layers) this.blobs.set(digest, bytes);
    this.blobs.set(sha256Digest(image.config), image.config);
    this.manifests.set(`${repository} ${image.digest}`, { bytes: image.manifest, type: image.mediaType });
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url!, this.url);
    this.asked.push(`${request.method} ${url.pathname}`);
    this.authorizations.push(request.headers.authorization);
    const refuse = (status: number, code: string, message: string, headers: Record<string, string> = {}) =>
      void response
        .writeHead(status, { 'content-type': 'application/json', ...headers })
        .end(JSON.stringify({ errors: [{ code, message }] }));
    if (url.pathname === '/token') {
      const scope = url.searchParams.get('scope') ?? '';
      if (!/^repository:.+:pull$/.test(scope)) return refuse(400, 'DENIED', 'no scope');
      if (!this.knows(request)) return refuse(401, 'UNAUTHORIZED', 'wrong login');
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ token: this.token }));
      return;
    }
    const [, repository, kind, name] = /^\/v2\/(.+)\/(manifests|blobs)\/([^/]+)$/.exec(url.pathname) ?? [];
    if (repository === undefined) return refuse(404, 'NAME_UNKNOWN', 'no such place');
    const { faults } = this;
    const isIn = faults.basic
      ? this.login !== null && this.knows(request)
      : request.headers.authorization === `Bearer ${this.token}`;
    if ((this.wantsToken || faults.basic) && !isIn) {
      const realm = faults.realm ?? `${this.url}/token`;
      const challenge = faults.basic
        ? 'Basic realm="registry"'
        : `Bearer realm="${realm}",service="registry"`;
      return refuse(401, 'UNAUTHORIZED', 'authentication required', { 'www-authenticate': challenge });
    }
    const planned = faults.next.shift();
    if (planned) {
      response.writeHead(planned.status, planned.headers ?? {}).end(planned.body ?? '');
      return;
    }
    if (kind === 'manifests') {
      const found = this.manifests.get(`${repository} ${name}`);
      if (!found) return refuse(404, 'MANIFEST_UNKNOWN', 'manifest unknown');
      response.writeHead(200, { 'content-type': found.type }).end(this.served(name!, found.bytes));
      return;
    }
    await this.blob(name!, url, response, refuse);
  }

  private knows({ headers }: IncomingMessage): boolean {
    const wanted = this.login && `Basic ${Buffer.from(this.login).toString('base64')}`;
    return wanted === null || headers.authorization === wanted;
  }

  private async blob(
    digest: string,
    url: URL,
    response: ServerResponse,
    refuse: (status: number, code: string, message: string) => void,
  ): Promise<void> {
    const { faults } = this;
    const bytes = this.blobs.get(digest);
    if (!bytes) return refuse(404, 'BLOB_UNKNOWN', 'blob unknown to registry');
    if (faults.slowMs > 0) await new Promise((resolve) => setTimeout(resolve, faults.slowMs));
    const to = faults.endless
      ? `${url.pathname}?${this.asked.length}`
      : faults.redirectTo && `${faults.redirectTo}${url.pathname}`;
    if (to) {
      response.writeHead(307, { location: to }).end();
      return;
    }
    if (faults.truncate.has(digest)) {
      response.writeHead(200, { 'content-length': bytes.length });
      response.write(bytes.subarray(0, bytes.length >> 1), () => response.destroy());
      return;
    }
    const served = this.served(digest, bytes);
    response.end(faults.lengthen.has(digest) ? Buffer.concat([served, Buffer.from('more')]) : served);
  }

  private served(name: string, bytes: Buffer): Buffer {
    if (!this.faults.corrupt.has(name)) return bytes;
    const other = Buffer.from(bytes);
    other[other.length >> 1]! ^= 1;
    return other;
  }
}
