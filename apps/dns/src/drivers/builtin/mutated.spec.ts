import { decode } from 'dns-packet';
import { connect } from 'node:net';
import { nameservers } from '../../../test/harness.js';
import { ask, question, sendUdp } from '../../../test/ask.js';
import { namesOf, type Random, randomName, randomOf, randomZone } from '../../../test/random-zone.js';
import { BuiltinDnsDriver } from './index.js';
import { Responder, udpLimit } from './responder.js';
import { ZoneTable } from './zone-table.js';

/** `npm run proof -- dns` gives 10,000: a million packets. */
const size = Number(process.env['NEBO_PROOF'] ?? 200) * 100;
const seed = Number(process.env['NEBO_SEED'] ?? 20_261_121);
const zone = 'mutated.test.';
const codes = new Set([0, 1, 3, 4, 5]);

/** A packet that was a query before something happened to it. */
function mutated(random: Random): Buffer {
  const types = ['A', 'TXT', 'MX', 'NS', 'SOA', 'ANY', 'AXFR'] as never[];
  const name = random(3) === 0 ? `${'a.'.repeat(random(60))}${zone}` : randomName(random, zone, true);
  const options = {
    type: types[random(types.length)]!,
    edns: random(2) === 0 ? null : random(5_000),
    flags: random(8) === 0 ? random(65_536) : 0,
  };
  let bytes = question(name, options);
  for (let times = random(6); times >= 0; times -= 1) {
    const at = random(Math.max(1, bytes.length));
    const kind = random(7);
    if (kind === 0) bytes = bytes.subarray(0, at);
    else if (kind === 1)
      bytes = Buffer.concat([bytes, Buffer.from(Array.from({ length: random(40) }, () => random(256)))]);
    else if (kind === 2)
      bytes = Buffer.concat([bytes.subarray(0, at), bytes.subarray(random(at + 1))]).subarray(0, 65_535);
    else if (kind === 3) bytes = Buffer.from(Array.from({ length: random(80) }, () => random(256)));
    // Pointers and lengths are what decoders stumble over.
    else if (bytes.length > 0) bytes[at] = [0, 0xc0, 0xff, 63, 64, random(256)][random(6)]!;
  }
  return bytes;
}

it(
  `of ${size} mutated packets each has its answer or none, a correct one, in a bounded time and memory`,
  () => {
    const random = randomOf(seed);
    const zones = new ZoneTable({ nameservers });
    const head = {
      id: 'z',
      account_id: 'a',
      name: zone,
      active: true,
      created_at: 0,
      serial: 1,
      default_ttl: 60,
    };
    zones.ensure(head, namesOf(randomZone(randomOf(3), zone)));
    const responder = new Responder(zones);
    const answered = new Map<number, number>();
    let longest = 0;
    for (let index = 0; index < size; index += 1) {
      const bytes = mutated(random);
      const begun = performance.now();
      const stream = index % 4 === 0;
      const answer = responder.answer(bytes, stream);
      longest = Math.max(longest, performance.now() - begun);
      if (bytes.length < 12 || (bytes[2]! & 0x80) !== 0) {
        expect(answer).toBeNull();
        continue;
      }
      if (!answer) throw new Error(`no answer to ${bytes.toString('hex')}`);
      const code = answer[3]! & 15;
      answered.set(code, (answered.get(code) ?? 0) + 1);
      const right =
        answer.readUInt16BE(0) === bytes.readUInt16BE(0) &&
        (answer[2]! & 0x80) !== 0 &&
        codes.has(code) &&
        answer.length <= (stream ? 65_535 : udpLimit);
      if (!right) throw new Error(`a wrong answer ${answer.toString('hex')} to ${bytes.toString('hex')}`);
      // Names of other bytes than letters are no names to the library.
      if (index % 50 === 0 && code !== 1) expect(() => decode(answer)).not.toThrow();
    }
    expect(longest).toBeLessThan(1_000);
    // The mutations are such that all of it is tried.
    for (const code of [0, 1, 3, 4, 5]) expect(answered.get(code) ?? 0).toBeGreaterThan(0);
    expect(responder.keptAnswers).toBeLessThanOrEqual(20_000);
  },
  60_000 + size,
);

describe('over the network', () => {
  let driver: BuiltinDnsDriver;
  let port: number;
  beforeAll(async () => {
    driver = new BuiltinDnsDriver({
      host: '127.0.0.1',
      port: 0,
      nameservers,
      rate: 0,
      onError: () => undefined,
    });
    port = await driver.open();
    const head = {
      id: 'z',
      account_id: 'a',
      name: zone,
      active: true,
      created_at: 0,
      serial: 1,
      default_ttl: 60,
    };
    driver.ensure(head, namesOf([{ name: `www.${zone}`, type: 'A', ttl: 1, contents: ['192.0.2.1'] }]));
  });
  afterAll(() => driver?.close());

  it('packets and streams of rubbish leave it answering', async () => {
    const random = randomOf(seed);
    for (let round = 0; round < 20; round += 1) {
      await Promise.all(Array.from({ length: 20 }, () => sendUdp(port, mutated(random), 20)));
      await new Promise<void>((resolve) => {
        const socket = connect(port, '127.0.0.1', () => {
          for (let count = random(8); count >= 0; count -= 1) {
            const bytes = mutated(random);
            const length = Buffer.alloc(2);
            length.writeUInt16BE(random(3) === 0 ? random(65_536) : bytes.length);
            socket.write(Buffer.concat([length, bytes]));
          }
          socket.end();
        });
        socket.on('error', () => undefined);
        socket.on('close', () => resolve());
        socket.resume();
      });
      expect((await ask(port, `www.${zone}`)).answers).toHaveLength(1);
    }
  });

  it('a response is not answered: two servers would talk for ever', async () => {
    const bytes = question(`www.${zone}`);
    bytes[2] = 0x80;
    expect(await sendUdp(port, bytes, 200)).toBeNull();
  });
});
