import { connect, isIP, type OnReadOpts, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Http1Target } from '@nebo/http1';

/** Where a vendor answers. */
export interface VendorHost extends Http1Target {
  isTls: boolean;
  /** The newest session of TLS: with it, the next handshake is shorter. */
  session: Buffer | undefined;
}

/** Seconds of silence after which a connection is asked whether it is still there: models may think for half an hour. */
const keepAliveSeconds = 60;

/** The host of an address; brackets of IPv6 left out. */
export function vendorHost({ protocol, hostname, port }: URL): VendorHost {
  const isTls = protocol === 'https:';
  return {
    host: hostname.startsWith('[') ? hostname.slice(1, -1) : hostname,
    port: port === '' ? (isTls ? 443 : 80) : Number(port),
    isTls,
    session: undefined,
  };
}

/** Makes a connection to a vendor, whose certificate has to be good for its name. */
export function connectVendor(vendor: VendorHost, onread: OnReadOpts): Socket {
  const { host, port, isTls, session } = vendor;
  const socket = isTls ? tlsSocket(vendor, { host, port, onread, session }) : connect({ host, port, onread });
  return socket.setNoDelay(true).setKeepAlive(true, keepAliveSeconds * 1_000);
}

function tlsSocket(
  vendor: VendorHost,
  to: { host: string; port: number; onread: OnReadOpts; session: Buffer | undefined },
): Socket {
  const socket = connectTls({
    ...to,
    ALPNProtocols: ['http/1.1'],
    // An address is no name that could be asked for (RFC 6066 section 3).
    ...(isIP(to.host) ? {} : { servername: to.host }),
  });
  return socket.on('session', (session: Buffer) => (vendor.session = session));
}
