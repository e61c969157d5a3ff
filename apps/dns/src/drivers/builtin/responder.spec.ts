import { decode } from 'dns-packet';
import { nameservers } from '../../../test/harness.js';
import { type Ask, dataOf, question, type Reply } from '../../../test/ask.js';
import { namesOf, type TextSet } from '../../../test/random-zone.js';
import { Responder } from './responder.js';
import { ZoneTable } from './zone-table.js';

const zone = 'example.com.';
const set = (name: string, type: TextSet['type'], ...contents: string[]): TextSet => ({
  name: name === '@' ? zone : `${name}.${zone}`,
  type,
  ttl: 60,
  contents,
});
const sets = [
  set('@', 'MX', '10 mail.example.com.'),
  set('@', 'TXT', '"apex"'),
  set('www', 'A', '192.0.2.1', '192.0.2.2'),
  set('mail', 'A', '192.0.2.3'),
  set('a.b.c', 'A', '192.0.2.4'),
  set('alias', 'CNAME', 'www.example.com.'),
  set('chain', 'CNAME', 'alias.example.com.'),
  set('out', 'CNAME', 'www.example.net.'),
  set('dangling', 'CNAME', 'nothing.example.com.'),
  set('loop1', 'CNAME', 'loop2.example.com.'),
  set('loop2', 'CNAME', 'loop1.example.com.'),
  set('todeleg', 'CNAME', 'x.sub.example.com.'),
  set('*.wild', 'A', '192.0.2.5'),
  set('*.wild', 'TXT', '"wild"'),
  set('there.wild', 'TXT', '"there"'),
  set('below.there2.wild', 'TXT', '"below"'),
  set('sub', 'NS', 'ns.sub.example.com.', 'ns.example.net.'),
  set('ns.sub', 'A', '192.0.2.53'),
  set('many', 'A', ...Array.from({ length: 100 }, (_, index) => `198.51.100.${index}`)),
];

const head = { account_id: 'a', active: true, created_at: 0, serial: 42, default_ttl: 300 };
const zones = new ZoneTable({ nameservers });
zones.ensure({ ...head, id: '1', name: zone }, namesOf(sets));
const responder = new Responder(zones);

const raw = (bytes: Buffer, stream = false) => responder.answer(bytes, stream);
const asked = (name: string, options: Ask = {}, stream = false) =>
  decode(raw(question(name, options), stream)!) as Reply;
const soa = [{ name: 'example.com', type: 'SOA', ttl: 300, data: { serial: 42, minimum: 300 } }];

describe('answers', () => {
  it.each<[string, Ask['type'], string[]]>([
    ['www.example.com', 'A', ['192.0.2.1', '192.0.2.2']],
    ['example.com', 'MX', ['{"preference":10,"exchange":"mail.example.com"}']],
    ['example.com', 'NS', ['ns1.nebo.test', 'ns2.nebo.test']],
    ['alias.example.com', 'CNAME', ['www.example.com']],
    ['alias.example.com', 'A', ['192.0.2.1', '192.0.2.2', 'www.example.com']],
    ['chain.example.com', 'A', ['192.0.2.1', '192.0.2.2', 'alias.example.com', 'www.example.com']],
    ['out.example.com', 'A', ['www.example.net']],
    ['loop1.example.com', 'A', ['loop1.example.com', 'loop2.example.com']],
    ['any.wild.example.com', 'A', ['192.0.2.5']],
    ['a.b.any.wild.example.com', 'A', ['192.0.2.5']],
    ['*.wild.example.com', 'A', ['192.0.2.5']],
  ])('%s %s', (name, type, data) => {
    const reply = asked(name, { type });
    expect(reply).toMatchObject({ rcode: 'NOERROR', flag_aa: true, flag_tc: false, authorities: [] });
    expect(dataOf(reply)).toEqual(data);
  });

  it.each<[string, string, Ask['type']]>([
    ['another type', 'www.example.com', 'AAAA'],
    ['an empty non-terminal', 'b.c.example.com', 'A'],
    ['a wildcard without the type', 'any.wild.example.com', 'MX'],
    ['a name that is there, so that the wildcard does not count', 'there.wild.example.com', 'A'],
    ['an empty name below a wildcard’s parent', 'there2.wild.example.com', 'A'],
    ['DS at a cut, which is ours to say', 'sub.example.com', 'DS'],
  ])('no data, with the SOA: %s', (_what, name, type) => {
    const reply = asked(name, { type });
    expect(reply).toMatchObject({ rcode: 'NOERROR', flag_aa: true, answers: [], authorities: soa });
  });

  it.each([
    ['nothing there', 'nothing.example.com'],
    ['below a name', 'x.www.example.com'],
    ['below a name that hides the wildcard', 'x.there.wild.example.com'],
    ['beside an empty non-terminal', 'x.c.example.com'],
  ])('no such name, with the SOA: %s', (_what, name) => {
    expect(asked(name)).toMatchObject({ rcode: 'NXDOMAIN', flag_aa: true, answers: [], authorities: soa });
  });

  it('a chain that ends in nothing says so behind the CNAME (RFC 6604)', () => {
    const reply = asked('dangling.example.com');
    expect(reply).toMatchObject({ rcode: 'NXDOMAIN', authorities: soa });
    expect(dataOf(reply)).toEqual(['nothing.example.com']);
  });

  it('at and below a cut it refers to the name servers, with the addresses that lie below it', () => {
    for (const [name, type] of [
      ['sub.example.com', 'A'],
      ['sub.example.com', 'NS'],
      ['x.y.sub.example.com', 'TXT'],
      ['ns.sub.example.com', 'A'],
      ['x.sub.example.com', 'DS'],
    ] as const) {
      const reply = asked(name, { type });
      expect(reply).toMatchObject({ rcode: 'NOERROR', flag_aa: false, answers: [] });
      expect(reply.authorities!.map((record) => (record as { data: unknown }).data)).toEqual([
        'ns.sub.example.com',
        'ns.example.net',
      ]);
      expect(reply.additionals).toMatchObject([{ name: 'ns.sub.example.com', data: '192.0.2.53' }]);
    }
    const behind = asked('todeleg.example.com');
    expect(behind).toMatchObject({ rcode: 'NOERROR', flag_aa: true });
    expect(behind.authorities).toHaveLength(2);
  });

  it('the letters of the question come back, in question and owner, also out of the cache', () => {
    for (const name of ['wWw.eXAmple.cOM', 'WWW.example.com']) {
      const reply = asked(name);
      expect(reply.questions).toMatchObject([{ name }]);
      expect(reply.answers!.map((record) => record.name)).toEqual([name, name]);
    }
  });

  it('ANY gets one set (RFC 8482)', () => {
    const reply = asked('example.com', { type: 'ANY' as never });
    expect(reply.answers).toHaveLength(1);
  });
});

describe('what is not answered', () => {
  it('other zones, zone transfers, other classes: REFUSED', () => {
    expect(asked('www.example.net')).toMatchObject({ rcode: 'REFUSED', flag_aa: false, answers: [] });
    expect(asked('notexample.com')).toMatchObject({ rcode: 'REFUSED' });
    for (const type of ['AXFR', 'IXFR'] as const)
      expect(asked('example.com', { type }, true)).toMatchObject({ rcode: 'REFUSED' });
    const chaos = question('version.bind', { type: 'TXT' });
    chaos.writeUInt16BE(3, chaos.length - 2);
    expect(decode(raw(chaos)!)).toMatchObject({ rcode: 'REFUSED' });
  });

  it('other opcodes: NOTIMP; several questions, none, rubbish behind: FORMERR', () => {
    const of = (change: (bytes: Buffer) => Buffer) => raw(change(question('www.example.com')))![3]! & 15;
    expect(of((bytes) => (bytes.writeUInt16BE(5 << 11, 2), bytes))).toBe(4);
    expect(of((bytes) => (bytes.writeUInt16BE(2, 4), bytes))).toBe(1);
    expect(of((bytes) => (bytes.writeUInt16BE(0, 4), bytes))).toBe(1);
    expect(of((bytes) => Buffer.concat([bytes, Buffer.from([1])]))).toBe(1);
    expect(of((bytes) => bytes.subarray(0, 20))).toBe(1);
    expect(of((bytes) => ((bytes[12] = 0xc0), bytes))).toBe(1);
    expect(of((bytes) => (bytes.writeUInt16BE(1, 10), bytes))).toBe(1);
  });

  it('responses, and less than a header', () => {
    const response = question('www.example.com');
    response[2] = 0x84;
    expect(raw(response)).toBeNull();
    expect(raw(Buffer.alloc(11))).toBeNull();
    expect(raw(Buffer.alloc(0))).toBeNull();
  });
});

describe('sizes', () => {
  it('without EDNS 512 bytes, with it what it says up to 1,232, over TCP all', () => {
    expect(raw(question('many.example.com'))!.length).toBeLessThan(100);
    expect(asked('many.example.com')).toMatchObject({ flag_tc: true, answers: [] });
    expect(asked('many.example.com', { edns: 4_096 })).toMatchObject({ flag_tc: true });
    expect(asked('many.example.com', { edns: 4_096 }, true).answers).toHaveLength(100);
    expect(asked('many.example.com', {}, true)).toMatchObject({ flag_tc: false });
    expect(asked('www.example.com', { edns: 0 }).answers).toHaveLength(2);
  });

  it('an OPT record for who sent one, with the DO bit repeated; another version is BADVERS', () => {
    expect(asked('www.example.com').additionals).toEqual([]);
    expect(asked('www.example.com', { edns: 1_232 }).additionals).toMatchObject([
      { type: 'OPT', udpPayloadSize: 1_232, flags: 0 },
    ]);
    const query = question('www.example.com', { edns: 1_232 });
    query[query.length - 4] = 0x80;
    expect(decode(raw(query)!).additionals).toMatchObject([{ flag_do: true }]);
    query[query.length - 5] = 1;
    const [opt] = decode(raw(query)!).additionals!;
    expect(opt).toMatchObject({ extendedRcode: 1 });
  });

  it('an OPT record twice, not at the root, or with options that do not fit: FORMERR', () => {
    const query = question('www.example.com', { edns: 1_232 });
    const opt = query.subarray(query.length - 11);
    const code = (bytes: Buffer, count = 1) => (bytes.writeUInt16BE(count, 10), raw(bytes)![3]! & 15);
    expect(code(Buffer.concat([query]))).toBe(0);
    expect(code(Buffer.concat([query, opt]), 2)).toBe(1);
    const options = Buffer.concat([query, Buffer.from([0, 10, 0, 9, 1])]);
    options.writeUInt16BE(5, query.length - 2);
    expect(code(options)).toBe(1);
  });
});

describe('several zones', () => {
  it('the longest zone answers; DS of a zone comes from its parent; a changed zone is answered anew', () => {
    const own = new ZoneTable({ nameservers });
    const server = new Responder(own);
    const look = (name: string, type: Ask['type'] = 'A') =>
      decode(server.answer(question(name, { type }))!) as Reply;
    own.ensure({ ...head, id: '1', name: zone }, namesOf([set('x.in', 'A', '192.0.2.1')]));
    expect(dataOf(look('x.in.example.com'))).toEqual(['192.0.2.1']);
    const inner = { ...head, id: '2', name: 'in.example.com.' };
    own.ensure(inner, namesOf([set('x.in', 'A', '192.0.2.2')]));
    expect(dataOf(look('x.in.example.com'))).toEqual(['192.0.2.2']);
    expect(look('in.example.com', 'DS').authorities).toMatchObject([{ name: 'example.com' }]);
    expect(own.change({ ...inner, serial: 43 }, namesOf([set('x.in', 'A', '192.0.2.3')]))).toBe(true);
    expect(dataOf(look('x.in.example.com'))).toEqual(['192.0.2.3']);
    own.change({ ...inner, serial: 44 }, [{ name: 'x.in.example.com.', sets: [] }]);
    expect(look('x.in.example.com').rcode).toBe('NXDOMAIN');
    own.remove('2');
    own.remove('2');
    expect(dataOf(look('x.in.example.com'))).toEqual(['192.0.2.1']);
    expect(own.change(inner, [])).toBe(false);
    expect(own.list().map(({ id }) => id)).toEqual(['1']);
  });
});
