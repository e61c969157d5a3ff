import { X509Certificate } from 'node:crypto';
import { chmod, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import https from 'node:https';
import { connect } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import tls, { type ConnectionOptions, type PeerCertificate } from 'node:tls';
import {
  artifact,
  backend,
  Cleanup,
  ControlPlane,
  replicas,
  type Running,
  startEdge,
  staticTarget,
  until,
} from '../../test/kit.js';
import { type Certificate, type CertificateSource, LocalCa } from '../index.js';

const cleanup = new Cleanup();

interface Result {
  status: number;
  text: string;
  peer: PeerCertificate;
  protocol: string | null;
}

function ask(
  run: Running,
  ca: string,
  servername: string,
  host: string,
  more: ConnectionOptions = {},
  path = '/',
): Promise<Result> {
  return new Promise((resolve, reject) => {
    const request = https.request(
      {
        host: '127.0.0.1',
        port: run.tlsPort,
        path,
        servername,
        ca,
        headers: { host },
        agent: false,
        ...more,
      },
      (answer) => {
        const socket = answer.socket as tls.TLSSocket;
        const [peer, protocol] = [socket.getPeerCertificate(), socket.getProtocol()];
        buffer(answer).then(
          (body) => resolve({ status: answer.statusCode!, text: body.toString(), peer, protocol }),
          reject,
        );
      },
    );
    request.on('error', reject).end();
  });
}

describe('TLS', () => {
  const plane = new ControlPlane();
  let run: Running;
  let ca: string;

  beforeAll(async () => {
    const site = await artifact({ 'index.html': 'shop' });
    plane.keep(site);
    plane.route('shop.apps.localhost', staticTarget(site));
    plane.route('custom.example.org', staticTarget(site));
    plane.route('*.wild.example.org', staticTarget(site));
    const app = await backend(cleanup, (req, res) => res.end(`${req.headers['x-forwarded-proto']}`));
    plane.route('app.apps.localhost', replicas(app.port));
    run = await startEdge(cleanup, plane);
    ca = await run.edge.caPem();
    await until(() => run.edge.status().hosts === 4 && run.edge.status().pending.length === 0);
  });
  afterAll(() => cleanup.run());

  it.each([
    ['shop.apps.localhost', ['*.apps.localhost', 'apps.localhost']],
    ['custom.example.org', ['custom.example.org']],
    ['a.wild.example.org', ['a.wild.example.org']],
  ])('%s: a certificate that the client verifies by the CA', async (host, names) => {
    const answer = await ask(run, ca, host, host);
    expect([answer.status, answer.text]).toEqual([200, 'shop']);
    expect(answer.peer.subjectaltname!.split(', ').sort()).toEqual(names.map((name) => `DNS:${name}`).sort());
    expect(['TLSv1.2', 'TLSv1.3']).toContain(answer.protocol);
    expect((answer.peer as { asn1Curve?: string }).asn1Curve).toBe('prime256v1');
    expect(new Date(answer.peer.valid_to).getTime()).toBeGreaterThan(Date.now() + 80 * 86_400_000);
  });

  it('replicas see https', async () => {
    expect((await ask(run, ca, 'app.apps.localhost', 'app.apps.localhost')).text).toBe('https');
  });

  it('a client without the CA refuses', async () => {
    const other = await new LocalCa(join(run.home, 'other'), 'apps.localhost').rootPem();
    await expect(ask(run, other, 'shop.apps.localhost', 'shop.apps.localhost')).rejects.toThrow(
      /certificate|signature/,
    );
  });

  it('a leaf is made once, also for many at once', async () => {
    const serials = await Promise.all(
      Array.from({ length: 10 }, () => ask(run, ca, 'custom.example.org', 'custom.example.org')),
    );
    expect(new Set(serials.map(({ peer }) => peer.serialNumber)).size).toBe(1);
  });

  it.each([
    ['shop.apps.localhost', 'custom.example.org'],
    ['shop.apps.localhost', 'app.apps.localhost'],
    ['shop.apps.localhost', 'nobody.org'],
  ])('SNI %s with Host %s: 421', async (servername, host) => {
    const answer = await ask(run, ca, servername, host);
    expect([answer.status, answer.text]).toEqual([421, expect.stringContaining('misdirected_request')]);
  });

  it('SNI and Host may differ in case, dot and port', async () => {
    expect((await ask(run, ca, 'shop.apps.localhost', 'SHOP.apps.localhost.:8443')).status).toBe(200);
  });

  it('an unknown name under the apps domain: the wildcard, then a neutral 404', async () => {
    const answer = await ask(run, ca, 'nobody.apps.localhost', 'nobody.apps.localhost');
    expect([answer.status, answer.peer.subject.CN]).toEqual([404, '*.apps.localhost']);
  });

  it.each(['nobody.org', 'a.b.apps.localhost', 'localhost', 'wild.example.org'])(
    'unknown SNI %s: no handshake, no certificate',
    async (servername) => {
      await expect(ask(run, ca, servername, servername, { rejectUnauthorized: false })).rejects.toThrow(
        /handshake|ECONNRESET|disconnected/,
      );
    },
  );

  it('no SNI: no handshake, no certificate', async () => {
    const outcome = await new Promise<string>((resolve) => {
      const socket = tls.connect({ host: '127.0.0.1', port: run.tlsPort, rejectUnauthorized: false }, () =>
        resolve('connected'),
      );
      socket.on('error', (error) => resolve(error.message));
    });
    expect(outcome).toMatch(/handshake/);
  });

  it('TLS 1.1 is refused, 1.2 is not', async () => {
    const old = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const;
    await expect(ask(run, ca, 'shop.apps.localhost', 'shop.apps.localhost', old)).rejects.toThrow();
    const answer = await ask(run, ca, 'shop.apps.localhost', 'shop.apps.localhost', {
      maxVersion: 'TLSv1.2',
    });
    expect([answer.status, answer.protocol]).toEqual([200, 'TLSv1.2']);
  });

  it('plain HTTP and noise on the TLS port end quietly', async () => {
    for (const text of ['GET / HTTP/1.1\r\nHost: shop.apps.localhost\r\n\r\n', '\0\0\0\0']) {
      await new Promise<void>((resolve) => {
        const socket = connect(run.tlsPort, '127.0.0.1', () => socket.end(text));
        socket
          .on('error', () => undefined)
          .on('close', () => resolve())
          .resume();
      });
    }
    expect((await ask(run, ca, 'shop.apps.localhost', 'shop.apps.localhost')).status).toBe(200);
  });

  it('a name that gets a route later gets its certificate', async () => {
    await expect(ask(run, ca, 'late.example.org', 'late.example.org')).rejects.toThrow();
    plane.route('late.example.org', { kind: 'none', reason: 'soon' });
    await run.edge.refresh();
    expect((await ask(run, ca, 'late.example.org', 'late.example.org')).status).toBe(503);
  });
});

describe('certificate sources', () => {
  const own = new Cleanup();
  afterEach(() => own.run());

  it('are asked before the local CA, and one that fails does not stop the next', async () => {
    const plane = new ControlPlane();
    for (const host of ['a.example.org', 'b.example.org']) plane.route(host, { kind: 'none', reason: 'x' });
    const folder = await own.folder();
    const foreign = new LocalCa(join(folder, 'foreign'), 'none.invalid');
    const asked: string[] = [];
    const source: CertificateSource = {
      name: 'test',
      certificate(host): Promise<Certificate | null> {
        asked.push(host);
        return host === 'a.example.org' ? foreign.certificate(host) : Promise.reject(new Error('away'));
      },
    };
    const run = await startEdge(own, plane, { certificates: [source] });
    await until(() => run.edge.status().ready);
    expect((await ask(run, await foreign.rootPem(), 'a.example.org', 'a.example.org')).status).toBe(503);
    expect((await ask(run, await run.edge.caPem(), 'b.example.org', 'b.example.org')).status).toBe(503);
    // Never for names that are not served here.
    await expect(ask(run, '', 'c.example.org', 'c.example.org')).rejects.toThrow();
    expect(asked).toEqual(['a.example.org', 'b.example.org']);
  });

  it('a certificate that runs out is replaced', async () => {
    const plane = new ControlPlane();
    plane.route('a.example.org', { kind: 'none', reason: 'x' });
    const foreign = new LocalCa(join(await own.folder(), 'foreign'), 'none.invalid');
    let made = 0;
    const source: CertificateSource = {
      name: 'short',
      async certificate(host) {
        made++;
        const certificate = await foreign.certificate(host);
        return {
          ...certificate,
          notBefore: new Date(Date.now() - 1_000),
          notAfter: new Date(Date.now() + (made === 1 ? 300 : 3_600_000)),
        };
      },
    };
    const run = await startEdge(own, plane, { certificates: [source] });
    await until(() => run.edge.status().ready);
    const pem = await foreign.rootPem();
    await ask(run, pem, 'a.example.org', 'a.example.org');
    await new Promise((resolve) => setTimeout(resolve, 350));
    await ask(run, pem, 'a.example.org', 'a.example.org');
    await ask(run, pem, 'a.example.org', 'a.example.org');
    expect(made).toBe(2);
  });
});

describe('local CA', () => {
  const own = new Cleanup();
  afterEach(() => own.run());

  it('key 0600, certificate readable, kept over restarts, nothing else left in the folder', async () => {
    const folder = join(await own.folder(), 'ca');
    const first = await new LocalCa(folder, 'apps.localhost').rootPem();
    expect((await readdir(folder)).sort()).toEqual(['ca.key', 'ca.pem']);
    expect((await stat(join(folder, 'ca.key'))).mode & 0o777).toBe(0o600);
    expect((await stat(folder)).mode & 0o777).toBe(0o700);
    expect(await new LocalCa(folder, 'apps.localhost').rootPem()).toBe(first);
    const cert = new X509Certificate(first);
    expect([cert.ca, cert.verify(cert.publicKey)]).toEqual([true, true]);
    expect(cert.publicKey.asymmetricKeyDetails).toMatchObject({ namedCurve: 'prime256v1' });
  });

  it('of many that start at once, all get the same CA', async () => {
    const folder = join(await own.folder(), 'ca');
    const pems = await Promise.all(
      Array.from({ length: 8 }, () => new LocalCa(folder, 'apps.localhost').rootPem()),
    );
    expect(new Set(pems).size).toBe(1);
  });

  it('leaves verify against the root', async () => {
    const ca = new LocalCa(join(await own.folder(), 'ca'), 'apps.localhost');
    const root = new X509Certificate(await ca.rootPem());
    const long = `${'a'.repeat(60)}.example.org`;
    for (const name of ['x.apps.localhost', 'apps.localhost', 'x.example.org', long, '*.apps.localhost']) {
      const leaf = new X509Certificate((await ca.certificate(name)).cert);
      expect([leaf.checkIssued(root), leaf.verify(root.publicKey), leaf.ca]).toEqual([true, true, false]);
      expect(leaf.subjectAltName).toContain(name.replace('x.apps', '*.apps'));
    }
  });

  it('a key that does not belong to the certificate is an error that names the files', async () => {
    const base = await own.folder();
    const [one, two] = [join(base, 'one'), join(base, 'two')];
    await new LocalCa(one, 'apps.localhost').rootPem();
    await new LocalCa(two, 'apps.localhost').rootPem();
    await chmod(join(one, 'ca.key'), 0o600);
    await writeFile(join(one, 'ca.key'), await readFile(join(two, 'ca.key')));
    await expect(new LocalCa(one, 'apps.localhost').rootPem()).rejects.toThrow('do not belong together');
  });
});
