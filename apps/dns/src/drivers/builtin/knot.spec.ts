import { decode, type Packet, type RecordType } from 'dns-packet';
import { nameservers } from '../../../test/harness.js';
import { Knot, knotd } from '../../../test/knot.js';
import { question, type Reply, sendTcp, sendUdp } from '../../../test/ask.js';
import {
  namesOf,
  type Random,
  randomName,
  randomOf,
  randomZone,
  type TextSet,
  zoneFile,
} from '../../../test/random-zone.js';
import { BuiltinDnsDriver } from './index.js';

/** Zones; 10,000 by `npm run proof -- dns`. */
const size = Number(process.env['NEBO_PROOF'] ?? 150);
const seed = Number(process.env['NEBO_SEED'] ?? 20_261_121);
const batch = 500;
const questionsOfEach = 40;
const head = { nameservers, serial: 7, defaultTtl: 300 };
const types: RecordType[] = ['A', 'AAAA', 'CNAME', 'NS', 'MX', 'SRV', 'CAA', 'TXT', 'SOA', 'DS', 'PTR'];

const known = knotd ? describe : describe.skip;

known('the built-in server answers as knot does (skipped without knotd)', () => {
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
  });
  afterAll(() => driver?.close());

  it(
    `over ${size} random zones, ${questionsOfEach} questions each`,
    async () => {
      for (let from = 0; from < size; from += batch) {
        const random = randomOf(seed + from);
        const zones = new Map<string, TextSet[]>();
        for (let index = from; index < Math.min(from + batch, size); index += 1) {
          const name = `z${index}.test.`;
          zones.set(name, randomZone(random, name));
        }
        const files = [...zones].map(([name, sets]) => [name, zoneFile(name, sets, head)] as const);
        const knot = await Knot.start(new Map(files));
        try {
          for (const [name, sets] of zones) {
            driver.ensure(
              { id: name, account_id: 'a', name, active: true, created_at: 0, serial: 7, default_ttl: 300 },
              namesOf(sets),
            );
            await compare(knot.port, name, sets, random);
            driver.remove(name);
          }
        } finally {
          await knot.stop();
        }
      }
    },
    60_000 + size * 1_000,
  );

  /** Asks both the same, half of it about names that are there. */
  async function compare(knot: number, zone: string, sets: TextSet[], random: Random): Promise<void> {
    const asked = Array.from({ length: questionsOfEach }, () => {
      const there = sets.length > 0 && random(2) === 0 ? sets[random(sets.length)]!.name : null;
      const name = there ?? (random(20) === 0 ? zone : randomName(random, zone, false));
      const type = types[random(types.length)]!;
      return {
        name: spelled(name, random),
        type,
        edns: random(3) === 0 ? null : 400 + random(1200),
        tcp: random(6) === 0,
      };
    });
    await Promise.all(
      asked.map(async ({ name, type, edns, tcp }) => {
        const bytes = question(name, { type, edns });
        const overTcp = async (to: number) => (await sendTcp(to, [bytes]))[0];
        const send = async (to: number) => (tcp ? overTcp(to) : await sendUdp(to, bytes, 3_000));
        let [ours, theirs] = await Promise.all([send(port), send(knot)]);
        // A packet may be lost on a loaded machine.
        if (!theirs) [ours, theirs] = await Promise.all([overTcp(port), overTcp(knot)]);
        const what = { zone: zoneFile(zone, sets, head), name, type, edns, tcp, seed };
        if (ours && theirs && isCut(ours) !== isCut(theirs)) {
          // Near the limit it depends on how names are compressed; over TCP both say all of it.
          const [ourRest, theirRest] = await Promise.all([overTcp(port), overTcp(knot)]);
          const longest = Math.max(ourRest!.length, theirRest!.length);
          expect({ ...what, long: longest > Math.max(512, Math.min(edns ?? 512, 1232)) }).toEqual({
            ...what,
            long: true,
          });
          expect({ ...what, answer: view(ourRest, sets) }).toEqual({
            ...what,
            answer: view(theirRest, sets),
          });
          return;
        }
        expect({ ...what, answer: view(ours, sets) }).toEqual({ ...what, answer: view(theirs, sets) });
      }),
    );
  }
});

/** Letters in any case: answers must not depend on it, and must repeat it. */
const spelled = (name: string, random: Random): string =>
  [...name].map((letter) => (random(2) === 0 ? letter.toUpperCase() : letter)).join('');

const isCut = (bytes: Buffer): boolean => (bytes[2]! & 2) !== 0;

/** What a resolver would act on. */
function view(bytes: Buffer | null | undefined, sets: readonly TextSet[]) {
  if (!bytes) return 'no answer';
  const reply = decode(bytes) as Reply;
  const { rcode, flag_aa, flag_tc, questions } = reply;
  const common = { rcode, flag_aa, flag_tc, questions };
  // What is cut off is asked for again; how much of it was there does not matter.
  if (flag_tc) return { rcode, flag_tc, questions };
  // A chain that comes back to its start is repeated once by knot. Names are compressed by either server as it likes, and
  // take their case from what they point to.
  const section = (records: Packet['answers'] = []) =>
    [
      ...new Set(
        records.filter(({ type }) => type !== 'OPT').map((record) => JSON.stringify(record).toLowerCase()),
      ),
    ].sort();
  const answers = section(reply.answers);
  const there = new Set(sets.map(({ name }) => name).filter((name) => !name.startsWith('*')));
  // Addresses beside an answer are a favour (knot does it, we keep answers short); beside a referral they are needed.
  const cut = answers.length === 0 ? reply.authorities?.[0]?.name.toLowerCase() : undefined;
  // Names that are not there, but lie below a wildcard, knot treats by chance of how they are compressed.
  const below = ({ name }: { name: string }) =>
    `.${name.toLowerCase()}`.endsWith(`.${cut}`) && there.has(`${name.toLowerCase()}.`);
  const glue = cut === undefined ? [] : section(reply.additionals?.filter(below));
  return { ...common, answers, authority: section(reply.authorities), glue };
}
