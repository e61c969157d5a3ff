import { execFile } from 'node:child_process';
import { Resolver } from 'node:dns/promises';
import { existsSync } from 'node:fs';
import { connect } from 'node:net';
import { promisify } from 'node:util';
import { decode, encode } from 'dns-packet';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { forms, type Installation } from '../harness/forms.js';
import { ParentZone } from '../harness/parent-zone.js';

const dig = ['/usr/bin/dig', '/usr/local/bin/dig'].find((path) => existsSync(path));
const run = promisify(execFile);

/** From the public door to an answer over UDP and TCP. */
describe.each(forms)('zones and records, $form', ({ missing, start }) => {
  const test = missing ? it.skip : it;
  let form: Installation;
  let api: Api;
  let parent: ParentZone;
  let resolver: Resolver;
  const contract = new ContractCheck(readContract('v1'));
  beforeAll(async () => {
    if (missing) return;
    parent = await ParentZone.start();
    form = await start({ NEBO_DNS_RESOLVER: parent.address, NEBO_NAMESERVERS: 'ns1.e2e.test,ns2.e2e.test' });
    api = new Api(form.baseUrl, form.key, contract);
    resolver = new Resolver({ timeout: 2_000, tries: 3 });
    resolver.setServers([form.dnsAddress]);
  }, 180_000);
  afterAll(async () => {
    await form?.stop();
    parent?.stop();
  });

  test('create a zone, delegate it, verify; make, change and delete records and see each answered', async () => {
    const zone = (await api.post('/dns/zones', { name: 'example.com', default_ttl: 120 })).body;
    expect(zone).toMatchObject({
      name: 'example.com.',
      status: 'pending',
      nameservers: ['ns1.e2e.test.', 'ns2.e2e.test.'],
    });
    const path = `/dns/zones/${zone.id}`;
    expect((await api.post(`${path}/verify`)).body).toMatchObject({
      status: 'pending',
      status_reason: expect.stringContaining('registered'),
    });
    parent.delegate('example.com.', ['ns1.e2e.test', 'ns2.e2e.test']);
    expect((await api.post(`${path}/verify`)).body).toMatchObject({ status: 'active', status_reason: null });
    expect((await api.get('/dns/zones?status_filter=active&search=example')).body).toMatchObject({
      total: 1,
    });

    const made = await api.post(`${path}/dns_records`, { name: 'www', type: 'A', content: '192.0.2.1' });
    expect(made).toMatchObject({
      status: 201,
      body: { name: 'www.example.com.', ttl: null, managed: false },
    });
    await seen(
      () => resolver.resolve4('www.example.com', { ttl: true }),
      [{ address: '192.0.2.1', ttl: 120 }],
    );
    expect((await api.patch(`${path}/dns_records/${made.body.id}`, { content: '192.0.2.2' })).status).toBe(
      200,
    );
    await seen(() => resolver.resolve4('WWW.example.com'), ['192.0.2.2']);

    const records = ['10 mx1.example.com.', '20 mx2.example.com.'];
    const set = (await api.post(`${path}/rrsets`, { name: '@', type: 'MX', ttl: null, records })).body;
    await seen(
      async () => (await resolver.resolveMx('example.com')).map(({ exchange }) => exchange).sort(),
      ['mx1.example.com', 'mx2.example.com'],
    );
    const put = { expected_revision: set.revision, ttl: 60, records: ['10 mx3.example.com.'] };
    const replaced = await api.call('PUT', `${path}/rrsets/${set.id}`, { body: put });
    expect(replaced).toMatchObject({ status: 200, body: { ttl: 60 } });
    expect(await api.call('PUT', `${path}/rrsets/${set.id}`, { body: put })).toMatchObject({
      status: 409,
      body: { error: { code: 'dns_rrset_changed' } },
    });
    await seen(
      async () => (await resolver.resolveMx('example.com')).map(({ exchange }) => exchange),
      ['mx3.example.com'],
    );

    await api.post(`${path}/dns_records`, { name: '*.apps', type: 'CNAME', content: 'www.example.com.' });
    await api.post(`${path}/dns_records`, { name: '_x', type: 'TXT', content: 'v=1 "as it stands"' });
    await seen(() => resolver.resolve4('any.apps.example.com'), ['192.0.2.2']);
    await seen(() => resolver.resolveTxt('_x.example.com'), [['v=1 "as it stands"']]);
    await seen(
      () => resolver.resolveNs('example.com').then((names) => names.sort()),
      ['ns1.e2e.test', 'ns2.e2e.test'],
    );

    const gone = await api.delete(`${path}/rrsets/${set.id}?expected_revision=${replaced.body.revision}`);
    expect(gone.status).toBe(204);
    expect((await api.delete(`${path}/dns_records/${made.body.id}`)).status).toBe(204);
    await seen(
      () => resolver.resolve4('www.example.com').catch((error: { code: string }) => error.code),
      'ENOTFOUND',
    );
    await seen(
      () => resolver.resolveMx('example.com').catch((error: { code: string }) => error.code),
      'ENODATA',
    );
    expect((await api.delete(path)).status).toBe(204);
    await seen(
      () => resolver.resolveNs('example.com').catch((error: { code: string }) => error.code),
      'EREFUSED',
    );
  });

  test('a long answer is cut over UDP and whole over TCP', async () => {
    const zone = (await api.post('/dns/zones', { name: 'long.example.org' })).body;
    const records = Array.from({ length: 200 }, (_, index) => `192.0.2.${index}`);
    expect(
      (await api.post(`/dns/zones/${zone.id}/rrsets`, { name: 'many', type: 'A', records })).status,
    ).toBe(201);
    await seen(
      async () => (await overTcp(form.dnsAddress, 'many.long.example.org')).sort(),
      [...records].sort(),
    );
    // Node's resolver goes over to TCP by itself.
    expect(await resolver.resolve4('many.long.example.org')).toHaveLength(200);
  });

  (dig ? test : test.skip)('dig reads it over UDP and TCP (skipped without dig)', async () => {
    const zone = (await api.post('/dns/zones', { name: 'dig.example.org' })).body;
    await api.post(`/dns/zones/${zone.id}/dns_records`, {
      name: '@',
      type: 'CAA',
      content: '0 issue "ca.example.net"',
    });
    const [host, port] = form.dnsAddress.split(':') as [string, string];
    const asked = async (...words: string[]) =>
      (await run(dig!, [`@${host}`, '-p', port, '+norecurse', ...words])).stdout;
    await seen(
      async () => (await asked('dig.example.org', 'CAA', '+short')).trim(),
      '0 issue "ca.example.net"',
    );
    for (const transport of ['+notcp', '+tcp']) {
      const text = await asked('nothing.dig.example.org', 'AAAA', transport);
      expect(text).toMatch(/status: NXDOMAIN/);
      expect(text).toMatch(/flags: qr aa;/);
      expect(text).toMatch(
        /dig\.example\.org\.\s+300\s+IN\s+SOA\s+ns1\.e2e\.test\. hostmaster\.dig\.example\.org\. \d+/,
      );
      expect(text).not.toMatch(/warning|malformed|mismatch/i);
    }
    expect(await asked('dig.example.org', 'AXFR', '+tcp')).toMatch(/Transfer failed/);
  });
});

/** A record is answered within a second of its POST; a loaded machine gets more. */
async function seen<T>(look: () => Promise<T>, wanted: T): Promise<void> {
  const end = Date.now() + 10_000;
  for (;;) {
    const found = await look().catch((error: { code?: string }) => error.code as T);
    if (JSON.stringify(found) === JSON.stringify(wanted) || Date.now() > end) {
      expect(found).toEqual(wanted);
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** The A records of a name, asked over TCP. */
function overTcp(address: string, name: string): Promise<string[]> {
  const [host, port] = address.split(':') as [string, string];
  const query = encode({ type: 'query', id: 7, questions: [{ type: 'A', name }] });
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), host, () => {
      const length = Buffer.alloc(2);
      length.writeUInt16BE(query.length);
      socket.write(Buffer.concat([length, query]));
    });
    let received = Buffer.alloc(0);
    socket.on('error', reject);
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk]);
      if (received.length < 2 || received.length < 2 + received.readUInt16BE(0)) return;
      socket.destroy();
      resolve(
        (decode(received.subarray(2)).answers ?? []).map((record) =>
          String((record as { data: unknown }).data),
        ),
      );
    });
  });
}
