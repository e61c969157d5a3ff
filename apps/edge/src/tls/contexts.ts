import { createSecureContext, type SecureContext } from 'node:tls';
import { parseHost, wildcardOf } from '../http/host.js';
import { type EdgeLogger } from '../observe/logger.js';
import { type Certificate, type CertificateSource } from './certificate-source.js';

interface Entry {
  context: SecureContext;
  /** Epoch milliseconds: from then on a new certificate is made, while the old one still serves. */
  renewAt: number;
  expiresAt: number;
}

/** Contexts in memory at most; the least recently used goes first. */
const MAX_CONTEXTS = 2_000;

/** Finds the secure context for a server name, makes each once and renews it in time. */
export class SecureContexts {
  private readonly entries = new Map<string, Entry>();
  private readonly making = new Map<string, Promise<Entry | null>>();

  /**
   * @param sources asked in order
   * @param serves whether a name may have a certificate here at all
   * @param appsDomain names directly under it share one context
   */
  constructor(
    private readonly sources: readonly CertificateSource[],
    private readonly serves: (host: string) => boolean,
    private readonly appsDomain: string,
    private readonly logger: EdgeLogger,
  ) {}

  /**
   * The context for the SNI of a client.
   * @returns null for a name that is not served here: the handshake is refused then, and no certificate shown
   */
  async forServerName(servername: string): Promise<SecureContext | null> {
    const host = parseHost(servername)?.host;
    if (host === undefined) return null;
    const known = this.serves(host);
    const key = known ? host : this.sharedKey(host);
    if (key === null) return null;
    const entry = this.entries.get(key);
    const now = Date.now();
    if (entry && now < entry.expiresAt) {
      this.entries.delete(key);
      this.entries.set(key, entry);
      if (now >= entry.renewAt) void this.make(key).catch(() => undefined);
      return entry.context;
    }
    return (await this.make(key))?.context ?? null;
  }

  /**
   * Forgets the contexts of a route's host: the next handshake asks the sources again.
   * @param host as of a route; `*.x` forgets all names that it serves
   */
  forget(host: string): void {
    for (const key of [...this.entries.keys(), ...this.making.keys()])
      if (key === host || wildcardOf(key) === host) {
        this.entries.delete(key);
        this.making.delete(key);
      }
  }

  /** Unknown names under the apps domain get the wildcard's handshake and then a 404, as DNS points them all here. */
  private sharedKey(host: string): string | null {
    const suffix = `.${this.appsDomain}`;
    if (!host.endsWith(suffix) || host.slice(0, -suffix.length).includes('.')) return null;
    return `*${suffix}`;
  }

  private make(key: string): Promise<Entry | null> {
    const running = this.making.get(key);
    if (running) return running;
    const task: Promise<Entry | null> = this.obtain(key)
      .then((certificate) => {
        if (!certificate) return null;
        const { notBefore, notAfter } = certificate;
        const expiresAt = notAfter.getTime();
        const entry: Entry = {
          context: createSecureContext({
            cert: certificate.cert,
            key: certificate.key,
            minVersion: 'TLSv1.2',
          }),
          renewAt: expiresAt - (expiresAt - notBefore.getTime()) / 3,
          expiresAt,
        };
        // A context that was forgotten while it was made serves those who waited, and nobody after them.
        if (this.making.get(key) !== task) return entry;
        this.entries.set(key, entry);
        if (this.entries.size > MAX_CONTEXTS) this.entries.delete(this.entries.keys().next().value!);
        return entry;
      })
      .finally(() => {
        if (this.making.get(key) === task) this.making.delete(key);
      });
    this.making.set(key, task);
    return task;
  }

  private async obtain(host: string): Promise<Certificate | null> {
    for (const source of this.sources) {
      try {
        const certificate = await source.certificate(host);
        if (certificate) return certificate;
      } catch (error) {
        this.logger.error({ err: error, host, source: source.name }, 'a certificate could not be had');
      }
    }
    return null;
  }
}
