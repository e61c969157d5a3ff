import { randomBytes, X509Certificate } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type CertificateBytes, type Route, type RouteCertificate } from '@nebo/contracts';
import { sleep } from '../abortable.js';
import { type EdgeLogger } from '../observe/logger.js';
import { type RouteSource } from '../routes/route-source.js';
import { type Certificate, type CertificateSource } from './certificate-source.js';

/** A handshake waits so long for a certificate that is not here; then the local CA serves it. Milliseconds. */
const HANDSHAKE_MS = 3_000;
const FETCH_MS = 10_000;
/** Longest pause between two attempts to fetch one. */
const MAX_BACKOFF_MS = 30_000;

/**
 * Certificates that the control plane ordered. Each is fetched as soon as its route names it and kept in a folder of its
 * own (0600, one file a fingerprint), so that the edge serves while the control plane is away.
 */
export class PlatformCertificates implements CertificateSource {
  readonly name = 'control plane';
  private readonly stopping = new AbortController();
  private readonly fetching = new Map<string, Promise<CertificateBytes>>();
  private readonly preparing = new Map<string, Promise<void>>();
  /** Fingerprint that each route host is served with. */
  private readonly served = new Map<string, string>();
  /** Route hosts that a handshake has had a certificate for. */
  private readonly shown = new Set<string>();

  /**
   * @param folder e.g. `NEBO_HOME/edge/certificates`
   * @param routeOf the live route of a normalised host
   * @param changed told of route hosts that have another certificate from now on, or none
   */
  constructor(
    private readonly folder: string,
    private readonly source: RouteSource,
    private readonly routeOf: (host: string) => Route | undefined,
    private readonly changed: (host: string) => void,
    private readonly logger: EdgeLogger,
  ) {}

  async certificate(host: string): Promise<Certificate | null> {
    const route = this.routeOf(host);
    const wanted = route?.certificate;
    if (!wanted) return null;
    this.shown.add(route.host);
    const { chain, key } = (await this.stored(wanted)) ?? (await this.fetch(wanted, HANDSHAKE_MS));
    const leaf = new X509Certificate(chain);
    return { cert: chain, key, notBefore: new Date(leaf.validFrom), notAfter: new Date(leaf.validTo) };
  }

  /** Fetches what live routes name and is not here yet, again and again until it comes or nobody wants it any more. */
  prepare(routes: readonly Route[]): void {
    for (const route of routes) {
      if (!route.certificate) {
        // Its old owner's certificate must not be shown for what another one serves.
        const had = [this.served.delete(route.host), this.shown.delete(route.host)];
        if (had.includes(true)) this.changed(route.host);
        continue;
      }
      if (this.preparing.has(route.host) || this.served.get(route.host) === route.certificate.fingerprint)
        continue;
      const task = this.bring(route.host)
        .catch((error: unknown) => {
          if (!this.stopping.signal.aborted)
            this.logger.error({ err: error, host: route.host }, 'a certificate could not be prepared');
        })
        .finally(() => this.preparing.delete(route.host));
      this.preparing.set(route.host, task);
    }
  }

  /** Removes certificates that no route names. @param needed their fingerprints */
  async sweep(needed: ReadonlySet<string>): Promise<void> {
    const names = await readdir(this.folder).catch(() => []);
    for (const name of names) {
      // Files that are just being written have longer names.
      const fingerprint = /^([0-9a-f]{64})\.json$/.exec(name)?.[1];
      if (fingerprint !== undefined && !needed.has(fingerprint))
        await rm(join(this.folder, name), { force: true });
    }
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await Promise.allSettled([...this.preparing.values(), ...this.fetching.values()]);
  }

  private async bring(host: string): Promise<void> {
    for (let failures = 0; !this.stopping.signal.aborted;) {
      const wanted = this.routeOf(host)?.certificate;
      if (!wanted) return;
      try {
        if (!(await this.stored(wanted))) await this.fetch(wanted, FETCH_MS);
        // A newer one may have been named meanwhile.
        if (this.routeOf(host)?.certificate?.fingerprint !== wanted.fingerprint) continue;
        this.served.set(host, wanted.fingerprint);
        this.changed(host);
        return;
      } catch (error) {
        failures += 1;
        if (this.stopping.signal.aborted) return;
        this.logger.warn({ err: error, host, failures }, 'a certificate could not be fetched; tried again');
        await sleep(Math.min(MAX_BACKOFF_MS, 250 * 2 ** Math.min(failures, 10)), this.stopping.signal);
      }
    }
  }

  private fetch(wanted: RouteCertificate, ms: number): Promise<CertificateBytes> {
    const { fingerprint } = wanted;
    const running = this.fetching.get(fingerprint);
    if (running) return running;
    const task = this.fetchNow(wanted, ms).finally(() => this.fetching.delete(fingerprint));
    this.fetching.set(fingerprint, task);
    return task;
  }

  private async fetchNow({ id, fingerprint }: RouteCertificate, ms: number): Promise<CertificateBytes> {
    if (!this.source.fetchCertificate) throw new Error('this source has no certificates');
    const signal = AbortSignal.any([this.stopping.signal, AbortSignal.timeout(ms)]);
    const bytes = await this.source.fetchCertificate(id, signal);
    if (fingerprintOf(bytes.chain) !== fingerprint)
      throw new Error(`certificate ${id} is another one than its route names`);
    await this.store(fingerprint, bytes).catch((error: unknown) =>
      this.logger.error({ err: error }, 'a certificate could not be stored; it is served from memory'),
    );
    return bytes;
  }

  /** Null for what is not here or unreadable: it is fetched anew. */
  private async stored({ fingerprint }: RouteCertificate): Promise<CertificateBytes | null> {
    try {
      const bytes = JSON.parse(await readFile(this.path(fingerprint), 'utf8')) as CertificateBytes;
      return fingerprintOf(bytes.chain) === fingerprint && typeof bytes.key === 'string' ? bytes : null;
    } catch {
      return null;
    }
  }

  /** Whole or not at all. */
  private async store(fingerprint: string, bytes: CertificateBytes): Promise<void> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const path = this.path(fingerprint);
    const next = `${path}.${randomBytes(4).toString('hex')}`;
    const file = await open(next, 'wx', 0o600);
    try {
      await file.writeFile(JSON.stringify(bytes));
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(next, path);
  }

  private path(fingerprint: string): string {
    return join(this.folder, `${fingerprint}.json`);
  }
}

const fingerprintOf = (chain: string): string =>
  new X509Certificate(chain).fingerprint256.replaceAll(':', '').toLowerCase();
