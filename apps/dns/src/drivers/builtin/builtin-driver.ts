import { createSocket, type Socket } from 'node:dgram';
import { type AddressInfo, isIPv6, type Server } from 'node:net';
import { Socket as TcpSocket } from 'node:net';
import type { DnsDriver, DnsFigures, NameData, ZoneHead } from '../dns-driver.js';
import { AnswerRate } from './rate.js';
import { Responder } from './responder.js';
import { createTcp } from './tcp.js';
import { ZoneTable } from './zone-table.js';

/** Options of the built-in server. */
export interface BuiltinOptions {
  host: string;
  /** UDP and TCP; 0: any that is free for both. */
  port: number;
  /** Canonical names of the name servers, the primary first. */
  nameservers: readonly string[];
  /** Answers over UDP to one network a second; 0: no limit. */
  rate: number;
  /** Told about trouble of the sockets, which must not end the process. */
  onError: (error: Error) => void;
}

/** An authoritative name server in this process: no part has to be installed, a record is answered as soon as it is known. */
export class BuiltinDnsDriver implements DnsDriver {
  readonly name = 'builtin';
  private readonly zones: ZoneTable;
  private readonly responder: Responder;
  private readonly rate: AnswerRate;
  private readonly connections = new Set<TcpSocket>();
  private udp: Socket | undefined;
  private tcp: Server | undefined;
  private limited = 0;

  constructor(private readonly options: BuiltinOptions) {
    this.zones = new ZoneTable({ nameservers: options.nameservers });
    this.responder = new Responder(this.zones);
    this.rate = new AnswerRate(options.rate);
  }

  /** @throws Error with the setting when the port is taken */
  async open(): Promise<number> {
    const { host, port } = this.options;
    for (let attempt = 0; ; attempt += 1) {
      try {
        const tcpPort = await this.openTcp(host, port);
        await this.openUdp(host, tcpPort);
        return tcpPort;
      } catch (error) {
        await this.close();
        const { code } = error as NodeJS.ErrnoException;
        // A free port for TCP may be taken for UDP.
        if (port === 0 && code === 'EADDRINUSE' && attempt < 20) continue;
        const why = code === 'EADDRINUSE' ? 'is taken' : `cannot be used (${code})`;
        throw new Error(`DNS port ${port} of ${host} ${why}; choose another with NEBO_DNS_PORT`, {
          cause: error,
        });
      }
    }
  }

  ensure(zone: ZoneHead, names: Iterable<NameData>): void {
    this.zones.ensure(zone, names);
  }

  change(zone: ZoneHead, names: Iterable<NameData>): boolean {
    return this.zones.change(zone, names);
  }

  remove(id: string): void {
    this.zones.remove(id);
  }

  head(id: string): ZoneHead | undefined {
    return this.zones.head(id);
  }

  list(): ZoneHead[] {
    return this.zones.list();
  }

  figures(): DnsFigures {
    return { answers: this.responder.answered, dropped: this.responder.dropped + this.limited };
  }

  async close(): Promise<void> {
    const { udp, tcp } = this;
    this.udp = undefined;
    this.tcp = undefined;
    if (udp) await new Promise<void>((resolve) => udp.close(() => resolve()));
    for (const socket of this.connections) socket.destroy();
    if (tcp?.listening) await new Promise<void>((resolve) => tcp.close(() => resolve()));
  }

  private openTcp(host: string, port: number): Promise<number> {
    const server = createTcp(this.responder);
    this.tcp = server;
    server.on('connection', (socket) => {
      this.connections.add(socket);
      socket.once('close', () => this.connections.delete(socket));
    });
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, host, () => {
        server.off('error', reject);
        server.on('error', this.options.onError);
        resolve((server.address() as AddressInfo).port);
      });
    });
  }

  private openUdp(host: string, port: number): Promise<void> {
    const socket = createSocket({
      type: isIPv6(host) ? 'udp6' : 'udp4',
      recvBufferSize: 4_194_304,
      sendBufferSize: 4_194_304,
      // Answers go to addresses of packets: there is no name to look up, and no reason to wait a turn for it.
      lookup: (address, _options, done) => done(null, address, isIPv6(address) ? 6 : 4),
    });
    this.udp = socket;
    socket.on('message', (bytes, { address, port: from }) => {
      const verdict = this.rate.verdict(address);
      // Port 0 is nobody's.
      if (verdict === 'drop' || from === 0) {
        this.limited += 1;
        return;
      }
      const answer = this.responder.answer(bytes, false, verdict === 'cut');
      if (answer) socket.send(answer, from, address, ignore);
    });
    return new Promise((resolve, reject) => {
      socket.once('error', reject);
      socket.bind(port, host, () => {
        socket.off('error', reject);
        socket.on('error', this.options.onError);
        resolve();
      });
    });
  }
}

/** A client that is gone, or a full buffer: it asks again. */
const ignore = (): void => undefined;
