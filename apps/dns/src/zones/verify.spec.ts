import { createSocket, type Socket } from 'node:dgram';
import { createServer, type Server } from 'node:net';
import type { AddressInfo } from 'node:net';
import { randomUUID } from 'node:crypto';
import { type Answer, type DecodedPacket, decode, encode, type Packet } from 'dns-packet';
import { sharedPostgres } from '@nebo/test-kit';
import { ask } from '../../test/ask.js';
import { Bench, eventually, freshName, nameservers } from '../../test/harness.js';

type Said = Partial<Packet> & { rcode?: number; silent?: boolean; cut?: boolean };

/** A resolver that says about each name what it was told to. */
class ScriptedResolver {
  readonly zones = new Map<string, Said>();
  readonly seen: string[] = [];
  private constructor(
    private readonly udp: Socket,
    private readonly tcp: Server,
  ) {}

  static async start(): Promise<ScriptedResolver> {
    const udp = createSocket('udp4');
    const tcp = createServer();
    const resolver = new ScriptedResolver(udp, tcp);
    await new Promise<void>((resolve) => tcp.listen(0, '127.0.0.1', resolve));
    await new Promise<void>((resolve) => udp.bind(resolver.port, '127.0.0.1', resolve));
    udp.on('message', (bytes, peer) => {
      const answer = resolver.answer(decode(bytes), 'udp');
      if (answer) udp.send(answer, peer.port, peer.address);
    });
    tcp.on('connection', (socket) => {
      socket.on('error', () => undefined);
      socket.once('data', (bytes) => {
        const answer = resolver.answer(decode(bytes.subarray(2)), 'tcp')!;
        const head = Buffer.alloc(2);
        head.writeUInt16BE(answer.length);
        // In two pieces, as long answers come.
        socket.write(Buffer.concat([head, answer.subarray(0, 20)]));
        setTimeout(() => socket.end(answer.subarray(20)), 5);
      });
    });
    return resolver;
  }

  get port(): number {
    return (this.tcp.address() as AddressInfo).port;
  }

  private answer(query: DecodedPacket, by: 'udp' | 'tcp'): Buffer | null {
    const name = query.questions![0]!.name;
    this.seen.push(`${by} ${name}`);
    const { rcode = 0, silent = false, cut = false, ...said } = this.zones.get(`${name}.`) ?? { rcode: 3 };
    if (silent) return null;
    const truncated = cut && by === 'udp';
    const flags = (truncated ? 0x0200 : 0) | rcode;
    return encode({
      type: 'response',
      id: query.id!,
      flags,
      questions: query.questions!,
      ...(truncated ? {} : said),
    });
  }

  stop(): void {
    this.udp.close();
    this.tcp.close();
  }
}

const ns = (name: string, ...hosts: string[]): Answer[] =>
  hosts.map((data) => ({ type: 'NS', name, ttl: 60, data }));

afterAll(async () => (await sharedPostgres()).stop());

describe('POST /dns/zones/{zone_id}/verify', () => {
  let resolver: ScriptedResolver;
  let bench: Bench;
  beforeAll(async () => {
    resolver = await ScriptedResolver.start();
    bench = await Bench.start({ NEBO_DNS_RESOLVER: `127.0.0.1:${resolver.port}` });
  });
  afterAll(async () => {
    await bench?.close();
    resolver?.stop();
  });

  const verify = (id: string, as = bench.key, headers: Record<string, string> = {}) =>
    bench.api('POST', `/${id}/verify`, undefined, as, headers);

  it('all our name servers in the answer of a resolver: active, said once', async () => {
    const zone = await bench.zone();
    resolver.zones.set(zone.name, { answers: ns(zone.name, 'NS1.nebo.test', 'ns2.nebo.test') });
    const answer = await verify(zone.id);
    expect(answer).toMatchObject({
      status: 200,
      body: { id: zone.id, status: 'active', status_reason: null },
    });
    expect((await verify(zone.id)).body).toEqual(answer.body);
    expect((await bench.api('GET', '?status_filter=active')).body.data).toEqual([answer.body]);
    const said = await bench.sql<{ data: object }>(
      "select envelope->'data' as data from outbox where envelope->'data'->>'zone_id' = $1",
      [zone.id],
    );
    expect(said).toEqual([{ data: { zone_id: zone.id, name: zone.name, status: 'active' } }]);
  });

  it('in the authority section of the parent’s server too; more than ours do no harm', async () => {
    const zone = await bench.zone();
    resolver.zones.set(zone.name, { authorities: ns(zone.name, ...nameservers, 'ns3.other.test') });
    expect((await verify(zone.id)).body.status).toBe('active');
  });

  it('over TCP when the answer was cut', async () => {
    const zone = await bench.zone();
    resolver.zones.set(zone.name, { answers: ns(zone.name, ...nameservers), cut: true });
    expect((await verify(zone.id)).body.status).toBe('active');
    expect(resolver.seen.slice(-2).map((line) => line.slice(0, 3))).toEqual(['udp', 'tcp']);
  });

  it.each<[string, Said, RegExp]>([
    ['one is missing', { answers: ns('Z', 'ns1.nebo.test') }, /missing: ns2\.nebo\.test\./],
    ['others', { answers: ns('Z', 'ns1.other.test') }, /delegated to ns1\.other\.test\.; missing: ns1\.nebo/],
    ['none at all', {}, /does not delegate .* has to name ns1\.nebo\.test\., ns2/],
    ['those of the parent', { authorities: ns('example', ...nameservers) }, /does not delegate/],
    ['an unknown name', { rcode: 3 }, /does not know .*registered/],
  ])('%s: pending, with what was found', async (_what, said, reason) => {
    const zone = await bench.zone();
    const named = (records: Answer[] = []) =>
      records.map((record) => ({ ...record, name: record.name === 'Z' ? zone.name : record.name }) as Answer);
    const whole = { ...said, answers: named(said.answers), authorities: named(said.authorities) };
    resolver.zones.set(zone.name, { answers: ns(zone.name, ...nameservers) });
    expect((await verify(zone.id)).body.status).toBe('active');
    resolver.zones.set(zone.name, whole);
    expect((await verify(zone.id)).body).toMatchObject({
      status: 'pending',
      status_reason: expect.stringMatching(reason),
    });
  });

  it('a resolver that fails or is silent changes no status, and is told of', async () => {
    const zone = await bench.zone();
    resolver.zones.set(zone.name, { answers: ns(zone.name, ...nameservers) });
    await verify(zone.id);
    resolver.zones.set(zone.name, { rcode: 2 });
    expect((await verify(zone.id)).body).toMatchObject({
      status: 'active',
      status_reason: expect.stringContaining('SERVFAIL'),
    });
    resolver.zones.set(zone.name, { silent: true });
    expect((await verify(zone.id)).body).toMatchObject({
      status: 'active',
      status_reason: expect.stringContaining('does not answer'),
    });
  }, 30_000);

  it('of one name in two accounts only one is active; the other one’s turn comes when it is gone', async () => {
    const name = freshName();
    const mine = await bench.zone({ name });
    const theirs = await bench.zone({ name }, bench.stranger);
    resolver.zones.set(name, { answers: ns(name, ...nameservers) });
    const both = await Promise.all([verify(mine.id), verify(theirs.id, bench.stranger)]);
    expect(both.map(({ status }) => status)).toEqual([200, 200]);
    expect(both.map(({ body }) => body.status).sort()).toEqual(['active', 'pending']);
    const [winner, loser] = both[0].body.status === 'active' ? [mine, theirs] : [theirs, mine];
    const keyOf = (zone: object) => (zone === mine ? bench.key : bench.stranger);
    expect(both.find(({ body }) => body.id === loser.id)!.body.status_reason).toContain('another account');
    expect((await bench.api('DELETE', `/${winner.id}`, undefined, keyOf(winner))).status).toBe(204);
    expect((await verify(loser.id, keyOf(loser))).body).toMatchObject({
      status: 'active',
      status_reason: null,
    });
  });

  it('the active zone is the one that is answered, and nobody’s pending zone below it', async () => {
    const name = freshName();
    const early = await bench.zone({ name }, bench.stranger);
    const mine = await bench.zone({ name });
    const add = (zone: { id: string }, host: string, content: string, as = bench.key) =>
      bench.api('POST', `/${zone.id}/dns_records`, { name: host, type: 'A', content }, as);
    await add(early, 'www', '192.0.2.66', bench.stranger);
    await add(mine, 'www', '192.0.2.1');
    const seen = async (host: string) =>
      (await ask(bench.port, `${host}.${name}`)).answers?.map((one) => (one as { data?: string }).data);
    // Nobody has proved anything yet: the one that was first.
    await eventually('the first zone', async () => (await seen('www'))?.[0] === '192.0.2.66');
    resolver.zones.set(name, { answers: ns(name, ...nameservers) });
    expect((await verify(mine.id)).body.status).toBe('active');
    await eventually('the active zone', async () => (await seen('www'))?.[0] === '192.0.2.1');
    const below = await bench.zone({ name: `www.${name}` }, bench.stranger);
    await add(below, '@', '192.0.2.66', bench.stranger);
    await add(mine, 'other', '192.0.2.2');
    await eventually('a later change', async () => (await seen('other'))?.[0] === '192.0.2.2');
    expect(await seen('www')).toEqual(['192.0.2.1']);
  });

  it('404 for what is not there; a repeat under one Idempotency-Key answers the first', async () => {
    expect((await verify(randomUUID())).status).toBe(404);
    const zone = await bench.zone();
    const headers = { 'idempotency-key': randomUUID() };
    const first = await verify(zone.id, bench.key, headers);
    resolver.zones.set(zone.name, { answers: ns(zone.name, ...nameservers) });
    expect(await verify(zone.id, bench.key, headers)).toMatchObject({ status: 200, text: first.text });
  });
});

it('without a resolver that can be reached nothing is learned', async () => {
  const bench = await Bench.start({ NEBO_DNS_RESOLVER: '127.0.0.1:1' });
  try {
    const zone = await bench.zone();
    expect(await bench.api('POST', `/${zone.id}/verify`)).toMatchObject({
      status: 200,
      body: { status: 'pending', status_reason: expect.stringContaining('could not be checked') },
    });
  } finally {
    await bench.close();
  }
}, 30_000);
