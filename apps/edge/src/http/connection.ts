import { type TLSSocket } from 'node:tls';
import { type HostAndPort, parseHost } from './host.js';

/** What a connection itself knows about the requests that come over it. */
export interface Connection {
  readonly secure: boolean;
  /** Whether a request for this host may come over it: on TLS, what was authenticated in the handshake is what is served. */
  covers(host: string): boolean;
  /** `parseHost`, which on one connection mostly gets one name. */
  parseHost(authority: string): HostAndPort | null;
}

class Remembered {
  private authority = '';
  private parsed: HostAndPort | null = null;

  parseHost(authority: string): HostAndPort | null {
    if (authority === this.authority) return this.parsed;
    this.parsed = parseHost(authority);
    this.authority = authority;
    return this.parsed;
  }
}

export class PlainConnection extends Remembered implements Connection {
  readonly secure = false;

  covers(): boolean {
    return true;
  }
}

/** HTTP/1.1 over TLS: one connection, one host (reliability.md section 8). */
export class TlsConnection extends Remembered implements Connection {
  readonly secure = true;
  /** Normalised SNI; null when there was none. */
  readonly servername: string | null;

  constructor(socket: TLSSocket) {
    super();
    const name = (socket as { servername?: string | false }).servername;
    this.servername = typeof name === 'string' ? name.toLowerCase().replace(/\.$/, '') : null;
  }

  covers(host: string): boolean {
    return host === this.servername;
  }
}

/** Hosts that one connection of HTTP/2 is asked for, at most; more than that is no browser. */
const MAX_HOSTS = 200;

/**
 * HTTP/2: clients reuse a connection for every name of its certificate that has the same address (RFC 9113 section 9.1.1), so
 * the certificate that was shown decides.
 */
export class CoalescedConnection extends TlsConnection {
  private readonly known = new Map<string, boolean>();
  private readonly certificate;

  constructor(socket: TLSSocket) {
    super(socket);
    this.certificate = socket.getX509Certificate();
  }

  /** Whether it is used for one of some hosts. */
  isFor(serves: (host: string) => boolean): boolean {
    return (
      (this.servername !== null && serves(this.servername)) ||
      [...this.known].some(([host, covered]) => covered && serves(host))
    );
  }

  override covers(host: string): boolean {
    if (host === this.servername) return true;
    let covered = this.known.get(host);
    if (covered === undefined) {
      if (this.known.size >= MAX_HOSTS) return false;
      covered = this.certificate?.checkHost(host, { subject: 'never' }) !== undefined;
      this.known.set(host, covered);
    }
    return covered;
  }
}
