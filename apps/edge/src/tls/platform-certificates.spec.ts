import { X509Certificate } from 'node:crypto';
import { readdir, stat } from 'node:fs/promises';
import http from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import tls from 'node:tls';
import { type CertificateBytes } from '@nebo/contracts';
import { Cleanup, ControlPlane, type Running, startEdge, until } from '../../test/kit.js';
import { LocalCa } from '../index.js';

const own = new Cleanup();
afterEach(() => own.run());

/** A control plane that orders certificates. */
class Ordering extends ControlPlane {
  readonly certificates = new Map<string, CertificateBytes>();
  readonly challenges = new Map<string, string>();
  asked = 0;

  fetchCertificate(id: string): Promise<CertificateBytes> {
    this.asked += 1;
    const bytes = this.certificates.get(id);
    return bytes && !this.down ? Promise.resolve(bytes) : Promise.reject(new Error('not there'));
  }

  fetchChallenge(host: string, token: string): Promise<string | null> {
    if (this.down) return Promise.reject(new Error('away'));
    return Promise.resolve(this.challenges.get(`${host} ${token}`) ?? null);
  }
}

const nothing = { kind: 'none', reason: 'nothing' } as const;

async function issue(ca: LocalCa, id: string, host: string): Promise<CertificateBytes> {
  const { cert, key } = await ca.certificate(host);
  const fingerprint = new X509Certificate(cert).fingerprint256.replaceAll(':', '').toLowerCase();
  return { id, fingerprint, chain: cert, key };
}

/** Fingerprint of what a client is shown. */
function shown(run: Running, servername: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = tls.connect(
      { host: '127.0.0.1', port: run.tlsPort, servername, rejectUnauthorized: false },
      () => {
        const { fingerprint256 } = socket.getPeerCertificate();
        socket.destroy();
        resolve(fingerprint256.replaceAll(':', '').toLowerCase());
      },
    );
    socket.on('error', reject);
  });
}

describe('certificates of the control plane', () => {
  it('are served as soon as the route names them, renewed ones too, and kept for a restart without it', async () => {
    const plane = new Ordering();
    const ca = new LocalCa(join(await own.folder(), 'ca'), 'apps.localhost');
    const first = await issue(ca, 'one', 'shop.example.org');
    const wild = await issue(ca, 'two', '*.wild.example.org');
    for (const bytes of [first, wild]) plane.certificates.set(bytes.id, bytes);
    plane.route('shop.example.org', nothing);
    const run = await startEdge(own, plane);
    await until(() => run.edge.status().ready);
    // Before it is ordered the local CA serves.
    const local = await shown(run, 'shop.example.org');
    expect(local).not.toBe(first.fingerprint);

    plane.route('shop.example.org', nothing, { certificate: first });
    plane.route('*.wild.example.org', nothing, { certificate: wild });
    await until(async () => (await shown(run, 'shop.example.org')) === first.fingerprint);
    await until(async () => (await shown(run, 'a.wild.example.org')) === wild.fingerprint);

    const second = await issue(ca, 'one', 'shop.example.org');
    plane.certificates.set('one', second);
    plane.route('shop.example.org', nothing, { certificate: second });
    await until(async () => (await shown(run, 'shop.example.org')) === second.fingerprint);

    const folder = join(run.home, 'edge', 'certificates');
    for (const name of await readdir(folder))
      expect([name, (await stat(join(folder, name))).mode & 0o777]).toEqual([name, 0o600]);
    await run.edge.stop();
    plane.down = true;
    const again = await startEdge(own, plane, { home: run.home });
    expect(await shown(again, 'shop.example.org')).toBe(second.fingerprint);
    expect(await shown(again, 'b.wild.example.org')).toBe(wild.fingerprint);
    // What no route names is gone from the disk.
    expect((await readdir(folder)).sort()).toEqual(
      [`${second.fingerprint}.json`, `${wild.fingerprint}.json`].sort(),
    );
  });

  it('one that cannot be had, or is another than the route names: the local CA serves until it comes', async () => {
    const plane = new Ordering();
    const ca = new LocalCa(join(await own.folder(), 'ca'), 'apps.localhost');
    const right = await issue(ca, 'one', 'shop.example.org');
    const other = await issue(ca, 'one', 'shop.example.org');
    plane.certificates.set('one', other);
    plane.route('shop.example.org', nothing, { certificate: right });
    const run = await startEdge(own, plane);
    await until(() => run.edge.status().ready && plane.asked > 0);
    const local = await shown(run, 'shop.example.org');
    expect([right.fingerprint, other.fingerprint]).not.toContain(local);
    plane.certificates.set('one', right);
    await until(async () => (await shown(run, 'shop.example.org')) === right.fingerprint);
  });

  it('a route that has lost its certificate is no longer served with it', async () => {
    const plane = new Ordering();
    const ca = new LocalCa(join(await own.folder(), 'ca'), 'apps.localhost');
    const bytes = await issue(ca, 'one', 'shop.example.org');
    plane.certificates.set('one', bytes);
    plane.route('shop.example.org', nothing, { certificate: bytes });
    const run = await startEdge(own, plane);
    await until(async () => (await shown(run, 'shop.example.org')) === bytes.fingerprint);
    plane.route('shop.example.org', nothing, { account_id: 'another' });
    await until(async () => (await shown(run, 'shop.example.org')) !== bytes.fingerprint);
  });
});

describe('challenges of certificate authorities', () => {
  const token = 'evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA';
  const ask = (run: Running, path: string, host = 'shop.example.org', method = 'GET') =>
    new Promise<{ status: number; body: string }>((resolve, reject) => {
      http
        .request({ host: '127.0.0.1', port: run.port, path, method, headers: { host } }, (answer) =>
          text(answer).then((body) => resolve({ status: answer.statusCode!, body }), reject),
        )
        .on('error', reject)
        .end();
    });

  it('are answered for the host and token under order, and nothing else is', async () => {
    const plane = new Ordering();
    plane.route('shop.example.org', nothing);
    plane.challenges.set(`shop.example.org ${token}`, `${token}.thumbprint`);
    plane.challenges.set(`new.example.org ${token}`, `${token}.other`);
    const run = await startEdge(own, plane);
    await until(() => run.edge.status().ready);
    const path = `/.well-known/acme-challenge/${token}`;
    expect(await ask(run, path)).toEqual({ status: 200, body: `${token}.thumbprint` });
    expect(await ask(run, path, 'shop.example.org', 'HEAD')).toEqual({ status: 200, body: '' });
    // A name that has no route yet.
    expect(await ask(run, path, 'new.example.org')).toEqual({ status: 200, body: `${token}.other` });
    // All else goes its usual way: here an app that is not running.
    for (const [url, method] of [
      [`/.well-known/acme-challenge/${'x'.repeat(43)}`, 'GET'],
      [`/.well-known/acme-challenge/short`, 'GET'],
      [`${path}/more`, 'GET'],
      [`${path}?a=b`, 'GET'],
      [path, 'POST'],
    ] as const)
      expect([url, (await ask(run, url, 'shop.example.org', method)).status]).toEqual([url, 503]);
    expect((await ask(run, path, 'unknown.example.org')).status).toBe(404);
    plane.down = true;
    expect((await ask(run, path)).status).toBe(503);
  });
});
