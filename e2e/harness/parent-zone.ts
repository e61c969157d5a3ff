import { createSocket, type Socket } from 'node:dgram';
import { type AddressInfo } from 'node:net';
import { decode, encode } from 'dns-packet';

/** The server of a parent zone: refers to the name servers that it was told about, knows no other names. */
export class ParentZone {
  private readonly delegations = new Map<string, readonly string[]>();
  private constructor(private readonly socket: Socket) {}

  static async start(): Promise<ParentZone> {
    const socket = createSocket('udp4');
    const parent = new ParentZone(socket);
    socket.on('message', (bytes, peer) => {
      const { id, questions = [] } = decode(bytes);
      const name = questions[0]!.name;
      const hosts = parent.delegations.get(`${name.toLowerCase()}.`);
      const authorities = (hosts ?? []).map((data) => ({ type: 'NS' as const, name, ttl: 60, data }));
      const answer = encode({ type: 'response', id: id!, flags: hosts ? 0 : 3, questions, authorities });
      socket.send(answer, peer.port, peer.address);
    });
    await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
    return parent;
  }

  get address(): string {
    return `127.0.0.1:${(this.socket.address() as AddressInfo).port}`;
  }

  delegate(zone: string, hosts: readonly string[]): void {
    this.delegations.set(zone, hosts);
  }

  stop(): void {
    this.socket.close();
  }
}
