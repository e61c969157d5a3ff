import { randomUUID, X509Certificate } from 'node:crypto';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import type { V1AppDomain } from '@nebo/contracts';
import { keyOf } from '@nebo/service-kit/testing';
import { type AcmePart, findPebble, sharedPostgres, startAcme } from '@nebo/test-kit';
import { Bench, eventually } from '../../test/harness.js';
import { StubDns, World } from '../../test/world.js';
import { AcmeError } from './acme/acme-error.js';
import { Authority } from './acme/authority.js';
import { CertificatesService } from './certificates.service.js';

afterAll(async () => (await sharedPostgres()).stop());

const freshName = () => `${randomUUID().slice(0, 8)}.example.com`;
const { found: pebble, reason } = findPebble();
const real = pebble === null ? describe.skip : describe;

real(`certificates from an authority${reason === null ? '' : ` (skipped: ${reason})`}`, () => {
  let acme: AcmePart;
  let bench: Bench;
  let world: World;
  let dns: StubDns;
  /** Answers authorities as the edge does: by asking. */
  let door: http.Server;
  /** What the door says instead, for the test of a wrong answer. */
  let wrong: string | null = null;

  beforeAll(async () => {
    door = http.createServer((req, res) => {
      const token = req.url!.split('/').at(-1)!;
      const host = req.headers.host!.split(':')[0]!;
      bench.internal('GET', `acme-challenges/${host}/${token}`).then(
        ({ status, body }) => {
          res.statusCode = status;
          res.end(wrong ?? body.answer);
        },
        () => res.destroy(),
      );
    });
    await new Promise<void>((resolve) => door.listen(0, '127.0.0.1', resolve));
    acme = await startAcme({ httpPort: (door.address() as AddressInfo).port });
    world = await World.start();
    dns = new StubDns();
    dns.onPut = async ({ name, type, contents }) => {
      if (type !== 'TXT') return;
      await acme.setText(name, contents[0]!);
      world.texts.set(name.replace(/\.$/, ''), contents);
    };
    bench = await Bench.start({
      NEBO_DNS_RESOLVER: world.address,
      NEBO_EDGE_ADDRESSES: '127.0.0.1',
      NEBO_DOMAIN_CHECK_MS: '100',
      NEBO_ACME_DIRECTORY: acme.directory,
      NEBO_ACME_CA_FILE: acme.caFile,
      NEBO_ACME_EMAIL: 'ops@example.com',
      NEBO_ACME_RETRY_MS: '500',
    });
    bench.nebo.runtime.targets.set('dns', dns.target);
  }, 60_000);
  afterEach(() => {
    wrong = null;
  });
  afterAll(async () => {
    await bench?.close();
    await acme?.stop();
    world?.stop();
    await new Promise((resolve) => door.close(resolve));
  });

  const add = async (name: string, more: object = {}) => {
    const { id: app } = await bench.app();
    const { status, body } = await bench.api('POST', `apps/${app}/domains`, { domain: name, ...more });
    expect(status).toBe(201);
    const now = async (): Promise<V1AppDomain> =>
      (await bench.api('GET', `apps/${app}/domains`)).body.data.find(({ id }: V1AppDomain) => id === body.id);
    const active = () =>
      eventually(
        `${name} is active`,
        async () => {
          const domain = await now();
          return domain.status === 'active' && domain;
        },
        30_000,
      );
    return { app, id: body.id as string, now, active };
  };
  const bytesOf = async (id: string) => (await bench.internal('GET', `certificates/${id}`)).body;

  it('by http-01: issued, listed, on its route, its key sealed, nothing left of the challenge', async () => {
    const name = freshName();
    world.addresses.set(name, '127.0.0.1');
    const domain = await add(name);
    const { certificate_id } = await domain.active();
    const { body } = await bench.api('GET', `certificates?domain=${name}`);
    expect(body.data).toEqual([
      {
        id: certificate_id,
        primary_domain: name,
        domains: [name],
        status: 'issued',
        challenge_type: 'http-01',
        not_before: expect.stringMatching(/Z$/),
        not_after: expect.stringMatching(/Z$/),
        created_at: expect.any(String),
      },
    ]);
    const bytes = await bytesOf(certificate_id!);
    const leaf = new X509Certificate(bytes.chain);
    expect(leaf.subjectAltName).toBe(`DNS:${name}`);
    expect(leaf.fingerprint256.replaceAll(':', '').toLowerCase()).toBe(bytes.fingerprint);
    const { routes } = (await bench.internal('GET', 'routes')).body;
    expect(routes.find(({ host }: { host: string }) => host === name).certificate).toEqual({
      id: certificate_id,
      fingerprint: bytes.fingerprint,
    });
    const [row] = await bench.sql<{ sealed_key: Buffer; acme_order: unknown }>(
      'select sealed_key, acme_order from certificate where id = $1',
      [certificate_id],
    );
    expect(row!.sealed_key.toString('latin1')).not.toContain('PRIVATE KEY');
    expect(row!.acme_order).toBeNull();
    expect(
      await bench.sql('select 1 from acme_challenge where certificate_id = $1', [certificate_id]),
    ).toEqual([]);
  });

  it('by dns-01 for a wildcard in a zone of the account; the TXT record is taken away', async () => {
    const name = freshName();
    dns.zones.set(`${bench.account} ${name}.`, 'active');
    const domain = await add(`*.${name}`);
    const { certificate_id } = await domain.active();
    expect((await bench.api('GET', `certificates?domain=*.${name}`)).body.data[0]).toMatchObject({
      id: certificate_id,
      challenge_type: 'dns-01',
      domains: [`*.${name}`],
    });
    expect(new X509Certificate((await bytesOf(certificate_id!)).chain).subjectAltName).toBe(`DNS:*.${name}`);
    await eventually('the TXT record is gone', async () => !dns.records.has(`_acme-challenge.${name}. TXT`));
    expect(dns.records.has(`*.${name}. A`)).toBe(true);
  });

  it('a wildcard outside of our DNS: its app is served, the reason stands on the domain', async () => {
    const name = freshName();
    world.addresses.set(`*.${name}`, '127.0.0.1');
    const domain = await add(`*.${name}`);
    await eventually('the reason', async () =>
      (await domain.now()).error?.includes('zone must be in the DNS'),
    );
    expect((await domain.now()).status).toBe('error');
    const { routes } = (await bench.internal('GET', 'routes')).body;
    expect(routes.some(({ host }: { host: string }) => host === `*.${name}`)).toBe(true);
  });

  it('a wrong answer: the authority’s reason stands on the domain, and the next attempt is made by itself', async () => {
    const name = freshName();
    world.addresses.set(name, '127.0.0.1');
    wrong = 'not what was asked for';
    const domain = await add(name);
    await eventually('the reason', async () =>
      (await domain.now()).error?.startsWith('no certificate: unauthorized'),
    );
    expect((await domain.now()).status).toBe('error');
    wrong = null;
    const { error } = await domain.active();
    expect(error).toBeNull();
  }, 60_000);

  it('an authority that is away, and one that has forgotten the account', async () => {
    await acme.kill();
    const name = freshName();
    world.addresses.set(name, '127.0.0.1');
    const domain = await add(name);
    await eventually('the reason', async () => (await domain.now()).error?.includes('does not answer'));
    // It comes back without a memory: the account is made again.
    await acme.restart();
    await domain.active();
  }, 60_000);

  it('renewed when a third of its life is left; the route names the new one', async () => {
    const name = freshName();
    world.addresses.set(name, '127.0.0.1');
    const domain = await add(name);
    const { certificate_id } = await domain.active();
    const { fingerprint } = await bytesOf(certificate_id!);
    await bench.sql(
      "update certificate set not_before = now() - interval '70 days', not_after = now() + interval '20 days' where id = $1",
      [certificate_id],
    );
    await bench.sql(
      "update lifecycle set run_at = now(), wakes = wakes + 1 where kind = 'certificate' and id = $1",
      [certificate_id],
    );
    await eventually(
      'the new one is on the route',
      async () => {
        const { routes } = (await bench.internal('GET', 'routes')).body;
        const { certificate } = routes.find(({ host }: { host: string }) => host === name);
        return certificate.id === certificate_id && certificate.fingerprint !== fingerprint;
      },
      30_000,
    );
  }, 60_000);

  it('keys and challenges are for the edge only; lists show what the key may see', async () => {
    const name = freshName();
    world.addresses.set(name, '127.0.0.1');
    const { certificate_id } = await (await add(name)).active();
    const other = { kind: 'service', service: 'compute', account_id: null } as const;
    for (const path of [`certificates/${certificate_id}`, `acme-challenges/${name}/aaaaaaaaaaaaaaaaaaaa`]) {
      const answer = await bench.nebo.request('apps-builder', {
        method: 'GET',
        path: `/internal/v1/${path}`,
        as: other,
      });
      expect([path, answer.status]).toEqual([path, 403]);
    }
    expect((await bench.internal('GET', `acme-challenges/${name}/aaaaaaaaaaaaaaaaaaaa`)).status).toBe(404);
    expect((await bench.internal('GET', `certificates/${randomUUID()}`)).status).toBe(404);
    expect(
      (await bench.api('GET', `certificates?domain=${name}`, undefined, bench.stranger)).body.total,
    ).toBe(0);
    const blind = keyOf(bench.account, {
      policy: [{ effect: 'allow', actions: ['app:read'], resources: ['*'] }],
    });
    expect((await bench.api('GET', 'certificates', undefined, blind)).body.total).toBe(0);
  });
});

describe('an authority that asks to come later', () => {
  let bench: Bench;
  let world: World;
  beforeAll(async () => {
    world = await World.start();
  });
  afterAll(async () => {
    await bench?.close();
    world?.stop();
  });

  it('is not asked again before, by nobody', async () => {
    bench = await Bench.start({
      NEBO_DNS_RESOLVER: world.address,
      NEBO_DOMAIN_CHECK_MS: '100',
      NEBO_ACME_RETRY_MS: '10',
      NEBO_ACME_DIRECTORY: 'https://127.0.0.1:9/dir',
    });
    bench.nebo.runtime.targets.set('dns', new StubDns().target);
    // The authority as a script: what a client makes of a 429 is tested beside it.
    let orders = 0;
    const client = {
      register: async () => 'https://127.0.0.1:9/acct/1',
      newOrder: async () => {
        orders += 1;
        throw new AcmeError('limited', 'rateLimited: too many certificates', 3_600_000);
      },
    };
    Object.assign(bench.nebo.services.get('apps-builder')!.app.get(Authority), { client });
    const { id: app } = await bench.app();
    const add = async () => {
      const name = freshName();
      world.addresses.set(name, '127.0.0.1');
      const { body } = await bench.api('POST', `apps/${app}/domains`, { domain: name });
      return async () =>
        (await bench.api('GET', `apps/${app}/domains`)).body.data.find(
          ({ id }: V1AppDomain) => id === body.id,
        );
    };
    const first = await add();
    await eventually('the reason', async () => (await first()).error?.includes('too many certificates'));
    const second = await add();
    await eventually('its name is shown', async () => (await second()).certificate_id);
    const waiting = await eventually('both wait', async () => {
      const rows = await bench.sql<{ state: string; left: number }>(
        `select state, extract(epoch from run_at - now())::float8 as left from lifecycle
         where kind = 'certificate' and reason like '%come later%'`,
      );
      return rows.length === 2 && rows;
    });
    for (const { state, left } of waiting) {
      expect(state).toBe('ordering');
      expect(left).toBeGreaterThan(3_000);
    }
    expect(orders).toBe(1);
  });
});

describe('an authority that comes and goes with the settings', () => {
  let bench: Bench;
  let world: World;
  let host: string;
  let app: string;
  beforeAll(async () => {
    world = await World.start();
    bench = await Bench.start({ NEBO_DNS_RESOLVER: world.address, NEBO_DOMAIN_CHECK_MS: '100' });
    bench.nebo.runtime.targets.set('dns', new StubDns().target);
    host = freshName();
    world.addresses.set(host, '127.0.0.1');
    app = (await bench.app()).id;
    await bench.api('POST', `apps/${app}/domains`, { domain: host });
    await shows({ status: 'issued', not_after: null });
  });
  afterAll(async () => {
    await bench?.close();
    world?.stop();
  });
  const shows = (wanted: object) =>
    eventually(`the certificate shows ${JSON.stringify(wanted)}`, async () => {
      const [row] = (await bench.api('GET', `certificates?domain=${host}`)).body.data;
      return row && Object.entries(wanted).every(([field, value]) => row[field] === value);
    });
  const parts = () => bench.nebo.services.get('apps-builder')!.app;
  const life = async () => {
    const [row] = await bench.sql<{ state: string; fence: string; rests: boolean }>(
      "select state, fence, run_at = 'infinity' as rests from lifecycle where kind = 'certificate'",
    );
    return row!;
  };

  it('one that is configured later is asked for the names that the edge has served so far', async () => {
    await eventually('it rests', async () => (await life()).rests);
    const ordered: string[][] = [];
    const client = {
      register: async () => 'https://127.0.0.1:9/acct/1',
      newOrder: async (_account: unknown, names: string[]) => {
        ordered.push(names);
        throw new AcmeError('refused', 'rejectedIdentifier: not today');
      },
    };
    Object.assign(parts().get(Authority), { client });
    await parts().get(CertificatesService).onApplicationBootstrap();
    await eventually('an order', async () => ordered.length > 0);
    expect(ordered[0]).toEqual([host]);
    await shows({ status: 'error' });
  });

  it('one that is taken away leaves its certificates to the edge when they would be renewed', async () => {
    Object.assign(parts().get(Authority), { client: null });
    await bench.sql(
      `update certificate set status = 'issued', chain = 'of before', sealed_key = 'x', fingerprint = 'f', challenge_type = 'http-01',
         not_before = now() - interval '80 days', not_after = now() + interval '10 days', retry_at = null`,
    );
    await bench.sql("update lifecycle set run_at = now(), wakes = wakes + 1 where kind = 'certificate'");
    await shows({ status: 'issued', challenge_type: null, not_before: null, not_after: null });
    await eventually('it rests', async () => (await life()).rests);
    const { fence, state } = await life();
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(await life()).toEqual({ fence, state, rests: true });
    const { routes } = (await bench.internal('GET', 'routes')).body;
    const route = routes.find((one: { host: string }) => one.host === host);
    expect(route).toBeDefined();
    expect(route.certificate).toBeUndefined();
  });
});
