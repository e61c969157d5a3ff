import { createSocket, type Socket } from 'node:dgram';
import { type AddressInfo } from 'node:net';
import type { ManagedDeleteRequest, ManagedPutRequest } from '@nebo/contracts';
import { type Answer, decode, encode } from 'dns-packet';
import { StubTarget } from './harness.js';

/** The DNS as the world sees it: a resolver on a port of its own that answers what it is told. */
export class World {
  readonly texts = new Map<string, string[]>();
  readonly addresses = new Map<string, string>();
  /** SERVFAIL for everything. */
  broken = false;
  /** SERVFAIL for one type only. */
  brokenType: string | null = null;

  private constructor(private readonly socket: Socket) {}

  static async start(): Promise<World> {
    const socket = createSocket('udp4');
    const world = new World(socket);
    socket.on('message', (bytes, peer) => {
      const { id, questions = [] } = decode(bytes);
      const { name, type } = questions[0]!;
      const answers: Answer[] = [];
      const lower = name.toLowerCase();
      if (type === 'TXT')
        for (const data of world.texts.get(lower) ?? []) answers.push({ type, name, ttl: 1, data });
      const address =
        world.addresses.get(lower) ?? world.addresses.get(`*${lower.slice(lower.indexOf('.'))}`);
      if (type === 'A' && address !== undefined) answers.push({ type, name, ttl: 1, data: address });
      const broken = world.broken || world.brokenType === type;
      const flags = broken ? 2 : 0;
      socket.send(
        encode({ type: 'response', id: id!, flags, questions, answers: broken ? [] : answers }),
        peer.port,
        peer.address,
      );
    });
    await new Promise<void>((resolve) => socket.bind(0, '127.0.0.1', resolve));
    return world;
  }

  get address(): string {
    return `127.0.0.1:${(this.socket.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.socket.close();
  }
}

/** dns as apps-builder sees it: zones by account, records by owner. */
export class StubDns {
  /** `account zone` → status. */
  readonly zones = new Map<string, 'pending' | 'active'>();
  /** What somebody else has put, `name type` → values. */
  readonly others = new Map<string, string>();
  readonly records = new Map<string, { owner: string; contents: string[] }>();
  readonly released = new Set<string>();
  away = false;
  /** Told of each put. */
  onPut: ((put: ManagedPutRequest) => Promise<void> | void) | undefined;

  readonly target = new StubTarget((path, body: ManagedPutRequest & ManagedDeleteRequest) => {
    if (this.away) return { status: 500, body: { error: { code: 'internal_error', message: 'away' } } };
    if (path.endsWith('/put-managed')) return this.put(body);
    if (path.endsWith('/delete-managed')) return this.delete(body);
    return undefined;
  });

  private put(put: ManagedPutRequest) {
    const error = (status: number, code: string, message: string) => ({
      status,
      body: { error: { code, message } },
    });
    if (this.released.has(put.owner)) return error(409, 'already_released', 'released');
    const zone = [...this.zones.keys()]
      .filter((key) => key.startsWith(`${put.account_id} `))
      .map((key) => key.split(' ')[1]!)
      .find((name) => put.name === name || put.name.endsWith(`.${name}`));
    if (zone === undefined) return error(404, 'no_zone', 'no zone');
    const place = `${put.name} ${put.type}`;
    if (put.override) this.others.delete(place);
    if (this.others.has(place))
      return error(
        409,
        'dns_record_conflict',
        `${put.name} has A records already: ${this.others.get(place)}`,
      );
    this.records.set(place, { owner: put.owner, contents: put.contents });
    void this.onPut?.(put);
    const status = this.zones.get(`${put.account_id} ${zone}`)!;
    return {
      status: 200,
      body: { zone_id: 'z', zone_name: zone, zone_status: status, record_ids: [], changed: true },
    };
  }

  private delete({ owner, name, type }: ManagedDeleteRequest) {
    if (!name) this.released.add(owner);
    let deleted = 0;
    for (const [place, record] of this.records)
      if (record.owner === owner && (!name || place === `${name} ${type}`)) {
        this.records.delete(place);
        deleted += 1;
      }
    return { status: 200, body: { deleted } };
  }
}
