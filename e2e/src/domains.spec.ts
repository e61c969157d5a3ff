import { X509Certificate } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import https from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type TLSSocket } from 'node:tls';
import { type AcmePart, findPebble, startAcme } from '@nebo/test-kit';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { forms, type Installation } from '../harness/forms.js';
import { run, until } from '../harness/nebo.js';
import { ParentZone } from '../harness/parent-zone.js';
import { freePort } from '../harness/ports.mjs';

const { found: pebble } = findPebble();
const nameservers = ['ns1.e2e.test', 'ns2.e2e.test'];

/** One request over TLS, as a visitor that trusts only `ca`. */
function visit(port: number, host: string, ca: string): Promise<{ body: string; names: string }> {
  return new Promise((resolve, reject) => {
    https
      .get(
        { host: '127.0.0.1', port, path: '/', servername: host, ca, agent: false, headers: { host } },
        (answer) => {
          const { raw } = (answer.socket as TLSSocket).getPeerCertificate();
          const names = new X509Certificate(raw).subjectAltName ?? '';
          text(answer).then((body) => resolve({ body, names }), reject);
        },
      )
      .on('error', reject);
  });
}

/** From a folder to a page under a custom domain, with the name, the record and the certificate all made here. */
describe.each(
  forms.flatMap((form) => [
    { ...form, authority: 'the local CA', withAcme: false },
    {
      ...form,
      authority: 'an ACME authority (skipped without pebble)',
      withAcme: true,
      missing: form.missing || pebble === null,
    },
  ]),
)('a custom domain in a zone of the account, with a certificate of $authority, $form', (on) => {
  const { missing, withAcme, start } = on;
  const test = missing ? it.skip : it;
  let parent: ParentZone;
  let acme: AcmePart | undefined;
  let nebo: Installation;
  let api: Api;

  beforeAll(async () => {
    if (missing) return;
    parent = await ParentZone.start();
    const [edgePort, dnsPort] = [await freePort(), await freePort()];
    if (withAcme) acme = await startAcme({ httpPort: edgePort, dnsServer: `127.0.0.1:${dnsPort}` });
    nebo = await start({
      NEBO_EDGE_PORT: `${edgePort}`,
      NEBO_DNS_PORT: `${dnsPort}`,
      NEBO_DNS_RESOLVER: parent.address,
      NEBO_NAMESERVERS: nameservers.join(','),
      // Only the event of the delegation can wake a name that waits for it.
      NEBO_DOMAIN_CHECK_MS: '600000',
      ...(acme ? { NEBO_ACME_DIRECTORY: acme.directory, NEBO_ACME_CA_FILE: acme.caFile } : {}),
    });
    api = new Api(nebo.baseUrl, nebo.key, new ContractCheck(readContract('v1')));
  }, 180_000);
  afterAll(async () => {
    await nebo?.stop();
    await acme?.stop();
    parent?.stop();
  });

  test('zone, app, domain, delegation: the page over TLS, for the name and for a wildcard', async () => {
    const zone = (await api.post('/dns/zones', { name: 'shop.example' })).body;
    const app = (await api.post(`/projects/${nebo.project}/apps`, { name: 'shop', source_type: 'upload' }))
      .body;
    const folder = mkdtempSync(join(tmpdir(), 'nebo-e2e-site-'));
    const archive = join(folder, 'site.tgz');
    await run('tar', ['-C', 'e2e/fixtures/static-site', '-czf', archive, '.']);
    const uploaded = await fetch(`${nebo.baseUrl}/apps/${app.id}/deployments`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${nebo.key}`,
        'content-type': 'application/gzip',
      },
      body: readFileSync(archive),
    });
    rmSync(folder, { recursive: true });
    expect(uploaded.status).toBe(202);

    const names = ['www.shop.example', '*.pages.shop.example'];
    for (const domain of names)
      expect(await api.post(`/apps/${app.id}/domains`, { domain })).toMatchObject({
        status: 201,
        body: { status: 'pending' },
      });
    const domains = async () =>
      (await api.get(`/apps/${app.id}/domains`)).body.data.filter(
        ({ is_default }: { is_default: boolean }) => !is_default,
      );
    await until(async () =>
      (await domains()).every(({ error }: { error: string | null }) => error?.includes('not delegated')),
    );
    parent.delegate('shop.example.', nameservers);
    expect((await api.post(`/dns/zones/${zone.id}/verify`)).body.status).toBe('active');
    await until(
      async () => (await domains()).every(({ status }: { status: string }) => status === 'active'),
      90_000,
    );
    const records = (await api.get(`/dns/zones/${zone.id}/dns_records`)).body.data;
    expect(records).toEqual(
      expect.arrayContaining([
        expect.objectContaining({
          name: 'www.shop.example.',
          type: 'A',
          content: '127.0.0.1',
          managed: true,
        }),
        expect.objectContaining({ name: '*.pages.shop.example.', type: 'A', managed: true }),
      ]),
    );

    const { home, edgeTlsPort: port } = nebo;
    const own = join(home, 'ca', 'ca.pem');
    // An edge of its own process makes its authority when it starts, which nobody has waited for.
    if (!acme) await until(() => existsSync(own), 60_000);
    const ca = acme ? await acme.root() : readFileSync(own, 'utf8');
    const page = async (host: string) => (await visit(port, host, ca).catch(() => null))?.body ?? '';
    await until(async () => (await page('www.shop.example')).includes('<'), 30_000);
    await until(async () => (await page('any.pages.shop.example')).includes('<'), 30_000);
    expect((await visit(port, 'www.shop.example', ca)).names).toBe('DNS:www.shop.example');
    expect((await api.get('/certificates?domain=*.pages.shop.example')).body).toMatchObject({
      total: 1,
      data: [{ status: 'issued', challenge_type: acme ? 'dns-01' : null }],
    });

    // The same after a restart without the authority.
    await acme?.kill();
    await nebo.restart?.();
    await until(async () => (await page('www.shop.example')).includes('<'), 30_000);

    const [first] = (await domains()).filter(({ domain }: { domain: string }) => domain === names[0]);
    expect((await api.delete(`/apps/${app.id}/domains/${first.id}`)).status).toBe(204);
    await until(async () => (await page('www.shop.example')) === '');
    await until(async () => {
      const left = (await api.get(`/dns/zones/${zone.id}/dns_records`)).body.data;
      return left.every(({ name }: { name: string }) => name !== 'www.shop.example.');
    });
  }, 240_000);
});
