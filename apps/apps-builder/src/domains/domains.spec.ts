import { randomUUID } from 'node:crypto';
import type { KeyIdentity, V1AppDomain } from '@nebo/contracts';
import { keyOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeEdge } from '../../test/fake-agent.js';
import { Bench, eventually } from '../../test/harness.js';
import { StubDns, World } from '../../test/world.js';

const freshName = () => `${randomUUID().slice(0, 8)}.example.com`;

describe('custom domains', () => {
  let bench: Bench;
  let world: World;
  let dns: StubDns;
  let edge: FakeEdge;

  beforeAll(async () => {
    world = await World.start();
    dns = new StubDns();
    bench = await Bench.start({
      NEBO_DNS_RESOLVER: world.address,
      NEBO_EDGE_ADDRESSES: '198.51.100.7',
      NEBO_DOMAIN_CHECK_MS: '100',
      NEBO_DOMAIN_AGAIN_MS: '500',
    });
    bench.nebo.runtime.targets.set('dns', dns.target);
    edge = new FakeEdge(bench);
    edge.run();
  });
  beforeEach(() => {
    dns.away = false;
    world.broken = false;
    world.brokenType = null;
  });
  afterAll(async () => {
    await edge?.stop();
    await bench?.close();
    world?.stop();
    await (await sharedPostgres()).stop();
  });

  const add = (app: string, domain: string, more: object = {}, as: KeyIdentity = bench.key) =>
    bench.api('POST', `apps/${app}/domains`, { domain, ...more }, as);
  const domainOf = async (app: string, id: string, as = bench.key): Promise<V1AppDomain | undefined> =>
    (await bench.api('GET', `apps/${app}/domains`, undefined, as)).body.data.find(
      (one: V1AppDomain) => one.id === id,
    );
  const becomes = (app: string, id: string, wanted: Partial<V1AppDomain>, as = bench.key) =>
    eventually(`domain is ${JSON.stringify(wanted)}`, async () => {
      const domain = await domainOf(app, id, as);
      return (
        domain &&
        Object.entries(wanted).every(([field, value]) => domain[field as keyof V1AppDomain] === value) &&
        domain
      );
    });
  const routeOf = async (host: string) =>
    (await bench.internal('GET', 'routes')).body.routes.find(
      (route: { host: string }) => route.host === host,
    );
  /** Another account with an app. */
  const rival = async () => {
    const key = keyOf(randomUUID());
    const made = await bench.api(
      'POST',
      `projects/${randomUUID()}/apps`,
      { name: 'rival', source_type: 'upload' },
      key,
    );
    expect(made.status).toBe(201);
    return { key, app: made.body.id as string };
  };

  it('in a zone of the account: an A record made by us, a route, a certificate; DELETE takes all of it away', async () => {
    const { id: app } = await bench.app();
    const name = freshName();
    dns.zones.set(`${bench.account} ${name}.`, 'active');
    const made = await add(app, `Www.${name}.`);
    expect(made).toMatchObject({
      status: 201,
      body: {
        domain: `www.${name}`,
        status: 'pending',
        type: 'current',
        is_default: false,
        dns_configured: false,
      },
    });
    const domain = await becomes(app, made.body.id, { status: 'active', error: null, dns_configured: true });
    expect(domain).toMatchObject({ target_ip: '198.51.100.7', certificate_id: expect.any(String) });
    expect(dns.records.get(`www.${name}. A`)).toEqual({
      owner: `app_domain:${domain.id}`,
      contents: ['198.51.100.7'],
    });
    await eventually('the route is there', () => routeOf(`www.${name}`));
    const listed = await bench.api('GET', `certificates?domain=WWW.${name}`);
    expect(listed.body).toMatchObject({
      total: 1,
      data: [
        { id: domain.certificate_id, primary_domain: `www.${name}`, status: 'issued', challenge_type: null },
      ],
    });

    expect(
      (await bench.api('DELETE', `projects/${bench.project}/apps/${app}/domains/${domain.id}`)).status,
    ).toBe(204);
    expect(await routeOf(`www.${name}`)).toBeUndefined();
    expect(await domainOf(app, domain.id)).toBeUndefined();
    await eventually('the record is gone', async () => !dns.records.has(`www.${name}. A`));
    expect((await bench.api('GET', `certificates?domain=www.${name}`)).body.total).toBe(0);
    expect((await bench.api('DELETE', `apps/${app}/domains/${domain.id}`)).status).toBe(404);
    // Its name is free at once, also while the old record is still being taken away.
    expect((await add(app, `www.${name}`)).status).toBe(201);
  });

  it('a zone that is not delegated yet shows nothing until it is', async () => {
    const { id: app } = await bench.app();
    const name = freshName();
    dns.zones.set(`${bench.account} ${name}.`, 'pending');
    const { body } = await add(app, name);
    const waiting = await eventually('a reason', async () => {
      const seen = await domainOf(app, body.id);
      return seen?.error ? seen : null;
    });
    expect(waiting).toMatchObject({ status: 'pending', error: expect.stringContaining('not delegated') });
    expect(await routeOf(name)).toBeUndefined();
    dns.zones.set(`${bench.account} ${name}.`, 'active');
    await becomes(app, body.id, { status: 'active', dns_configured: true });
  });

  it('records of the account are not replaced unless it says so', async () => {
    const { id: app } = await bench.app();
    const name = freshName();
    dns.zones.set(`${bench.account} ${name}.`, 'active');
    dns.others.set(`${name}. A`, '192.0.2.9');
    const { body } = await add(app, name);
    const waiting = await eventually('a reason', async () => {
      const seen = await domainOf(app, body.id);
      return seen?.error ? seen : null;
    });
    expect(waiting.error).toMatch(/192\.0\.2\.9.*override_dns/);
    expect((await bench.api('DELETE', `apps/${app}/domains/${body.id}`)).status).toBe(204);
    const again = await add(app, name, { override_dns: true });
    await becomes(app, again.body.id, { status: 'active', dns_configured: true });
  });

  it('outside: says which record to set, and is active when it is', async () => {
    const { id: app } = await bench.app();
    const name = freshName();
    world.addresses.set(name, '192.0.2.1');
    const { body } = await add(app, name);
    const waiting = await becomes(app, body.id, { status: 'pending' }).then(() =>
      eventually('a reason', async () => {
        const seen = await domainOf(app, body.id);
        return seen?.error ? seen : null;
      }),
    );
    expect(waiting.error).toContain(`set an A record of ${name} to 198.51.100.7 (it leads to 192.0.2.1 now)`);
    expect(waiting.error).toMatch(/_nebo-challenge\.\S+ to [0-9a-f]{40}/);
    world.addresses.set(name, '198.51.100.7');
    await becomes(app, body.id, { status: 'active', error: null, dns_configured: false });
    await eventually('the route is there', () => routeOf(name));

    // A resolver in trouble changes nothing; a name that leads elsewhere says so and goes on being served.
    world.broken = true;
    await new Promise((resolve) => setTimeout(resolve, 800));
    expect(await domainOf(app, body.id)).toMatchObject({ status: 'active', error: null });
    world.broken = false;
    world.addresses.set(name, '192.0.2.1');
    await eventually('the reason', async () => (await domainOf(app, body.id))?.error?.includes('192.0.2.1'));
    expect(await domainOf(app, body.id)).toMatchObject({ status: 'active' });
    expect(await routeOf(name)).toBeDefined();
  });

  it('a wildcard is judged by a name below it', async () => {
    const { id: app } = await bench.app();
    const name = freshName();
    world.addresses.set(`*.${name}`, '198.51.100.7');
    const { body } = await add(app, `*.${name}`, { skip_certificate: true });
    expect(body.url).toBeNull();
    await becomes(app, body.id, { status: 'active', certificate_id: null });
    await eventually('the route is there', () => routeOf(`*.${name}`));
  });

  it('below a wildcard of another account leading here shows nothing, a TXT record does', async () => {
    const { id: app } = await bench.app();
    const other = await rival();
    const name = freshName();
    world.addresses.set(`*.${name}`, '198.51.100.7');
    const { body } = await add(app, `*.${name}`, { skip_certificate: true });
    await becomes(app, body.id, { status: 'active' });
    // The resolver says so of every name below, however deep.
    world.addresses.set(`in.deep.${name}`, '198.51.100.7');
    world.addresses.set(`nebo-check.deep.${name}`, '198.51.100.7');
    for (const host of [`shop.${name}`, `in.deep.${name}`, `*.deep.${name}`]) {
      const theirs = await add(other.app, host, { skip_certificate: true }, other.key);
      expect(theirs.status).toBe(201);
      const blocked = await becomes(other.app, theirs.body.id, { status: 'error' }, other.key);
      expect(blocked.error).toContain('another account here is the owner');
      expect(await routeOf(host)).toBeUndefined();
      if (host !== `shop.${name}`) continue;
      const text = /yours: ([0-9a-f]{40}) at/.exec(blocked.error!)![1]!;
      world.texts.set(`_nebo-challenge.${host}`, [text]);
      await becomes(other.app, theirs.body.id, { status: 'active' }, other.key);
      expect((await routeOf(host)).app_id).toBe(other.app);
      expect(
        (await bench.api('DELETE', `apps/${other.app}/domains/${theirs.body.id}`, undefined, other.key))
          .status,
      ).toBe(204);
    }
    // The account's own names below its wildcard need no more than before.
    const own = await add(app, `own.${name}`, { skip_certificate: true });
    await becomes(app, own.body.id, { status: 'active' });
  });

  it('a wildcard that leads here around names of another account shows nothing either', async () => {
    const { id: app } = await bench.app();
    const other = await rival();
    const name = freshName();
    world.addresses.set(`*.${name}`, '198.51.100.7');
    const { body } = await add(app, `shop.${name}`, { skip_certificate: true });
    await becomes(app, body.id, { status: 'active' });
    const theirs = await add(other.app, `*.${name}`, { skip_certificate: true }, other.key);
    const blocked = await becomes(other.app, theirs.body.id, { status: 'error' }, other.key);
    expect(blocked.error).toContain('another account here is the owner');
    expect(await routeOf(`*.${name}`)).toBeUndefined();
    const own = await add(app, `*.${name}`, { skip_certificate: true });
    await becomes(app, own.body.id, { status: 'active' });
  });

  it('a TXT record shows ownership before the name leads here', async () => {
    const { id: app } = await bench.app();
    const name = freshName();
    const { body } = await add(app, name);
    const waiting = await eventually('a reason', async () => {
      const seen = await domainOf(app, body.id);
      return seen?.error ? seen : null;
    });
    const text = / to ([0-9a-f]{40})$/.exec(waiting.error!)![1]!;
    world.texts.set(`_nebo-challenge.${name}`, ['something else', text]);
    await eventually('the route is there', () => routeOf(name));
    expect(await domainOf(app, body.id)).toMatchObject({
      status: 'pending',
      error: expect.stringContaining('set an A record'),
    });
  });

  it('claims that show nothing block nobody; the first that shows something is the owner', async () => {
    const { id: app } = await bench.app();
    const other = await rival();
    const name = freshName();
    const mine = (await add(app, name)).body;
    const theirs = await add(other.app, name, {}, other.key);
    expect(theirs.status).toBe(201);
    dns.zones.set(`${other.key.account_id} ${name}.`, 'active');
    await becomes(other.app, theirs.body.id, { status: 'active' }, other.key);
    expect((await domainOf(app, mine.id))!.status).not.toBe('active');
    await eventually('the route is theirs', async () => (await routeOf(name))?.app_id === other.app);
    // Pointing here is weaker than a zone.
    world.addresses.set(name, '198.51.100.7');
    const blocked = await becomes(app, mine.id, { status: 'error' });
    expect(blocked.error).toContain('another account here is the owner');
    expect((await routeOf(name)).app_id).toBe(other.app);
    // The zone goes: what is left to show is equal, and the owner stays.
    dns.zones.delete(`${other.key.account_id} ${name}.`);
    // A TXT record is more, and takes the name over in one switch of its route.
    const text = /yours: ([0-9a-f]{40}) at/.exec(blocked.error!)![1]!;
    world.texts.set(`_nebo-challenge.${name}`, [text]);
    await becomes(app, mine.id, { status: 'active' });
    expect((await routeOf(name)).app_id).toBe(app);
    expect(await becomes(other.app, theirs.body.id, { status: 'error' }, other.key)).toBeTruthy();
  });

  it('an owner that has nothing to show any more makes room', async () => {
    const { id: app } = await bench.app();
    const other = await rival();
    const name = freshName();
    world.addresses.set(name, '198.51.100.7');
    const { body } = await add(app, name);
    await becomes(app, body.id, { status: 'active' });
    const refused = await add(other.app, name, {}, other.key);
    expect(refused).toMatchObject({ status: 409, body: { error: { code: 'domain_taken' } } });
    const text = / to ([0-9a-f]{40}) and repeat/.exec(refused.body.error.message)![1]!;
    world.addresses.delete(name);
    world.texts.set(`_nebo-challenge.${name}`, [text]);
    const theirs = await add(other.app, name, {}, other.key);
    expect(theirs.status).toBe(201);
    await eventually('the route is theirs', async () => (await routeOf(name))?.app_id === other.app);
    await eventually(
      'the old owner is told',
      async () => (await domainOf(app, body.id))?.status !== 'active',
    );
  });

  it('a resolver that knows one family of addresses only says nothing of a name that leads here by the other', async () => {
    const { id: app } = await bench.app();
    const other = await rival();
    const name = freshName();
    const theirs = await add(other.app, name, {}, other.key);
    expect(theirs.status).toBe(201);
    world.addresses.set(name, '198.51.100.7');
    const { body } = await add(app, name, {}, bench.key);
    const [owner, as] = await eventually('one of both has it', async () => {
      if ((await domainOf(app, body.id))?.status === 'active') return [app, bench.key] as const;
      const domain = await domainOf(other.app, theirs.body.id, other.key);
      return domain?.status === 'active' && ([other.app, other.key] as const);
    });
    const id = as === bench.key ? body.id : theirs.body.id;
    world.brokenType = 'A';
    const looks = async () => {
      const [row] = await bench.sql<{ fence: string }>(
        "select fence from lifecycle where kind = 'domain' and id = $1",
        [id],
      );
      return Number(row!.fence);
    };
    const before = await looks();
    await eventually('it was looked at again', async () => (await looks()) > before + 1);
    expect(await domainOf(owner, id, as)).toMatchObject({ status: 'active', error: null });
    expect((await routeOf(name)).app_id).toBe(owner);
    world.brokenType = null;
  });

  it.each([
    ['no name', 422, 'validation_error', 'localhost'],
    ['an address', 422, 'validation_error', '127.0.0.1'],
    ['empty', 422, 'validation_error', ''],
    ['too long', 422, 'validation_error', `${'a.'.repeat(140)}com`],
    ['the platform’s own', 409, 'domain_reserved', 'shop.apps.localhost'],
    ['the platform’s own wildcard', 409, 'domain_reserved', '*.apps.localhost'],
  ])('%s is refused: %i %s', async (_what, status, code, domain) => {
    const { id: app } = await bench.app();
    expect(await add(app, domain)).toMatchObject({ status, body: { error: { code } } });
  });

  it('a name of another app of the account is 409, whoever asks first of many at once wins', async () => {
    const { id: app } = await bench.app();
    const { id: second } = await bench.app();
    const name = freshName();
    const answers = await Promise.all([app, second, app, second].map((one) => add(one, name)));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409, 409, 409]);
    expect(answers.find(({ status }) => status === 409)!.body.error.code).toBe('domain_taken');
  });

  it('others’ apps and domains are 404, the default domain stays', async () => {
    const { id: app } = await bench.app();
    const { body } = await add(app, freshName());
    const { id: second } = await bench.app();
    expect((await add(app, freshName(), {}, bench.stranger)).status).toBe(404);
    expect(
      (await bench.api('DELETE', `apps/${app}/domains/${body.id}`, undefined, bench.stranger)).status,
    ).toBe(404);
    expect((await bench.api('DELETE', `apps/${second}/domains/${body.id}`)).status).toBe(404);
    expect((await bench.api('DELETE', `apps/${app}/domains/nonsense`)).status).toBe(404);
    const [own] = (await bench.api('GET', `apps/${app}/domains`)).body.data;
    expect(own.is_default).toBe(true);
    expect(await bench.api('DELETE', `apps/${app}/domains/${own.id}`)).toMatchObject({
      status: 409,
      body: { error: { code: 'default_domain' } },
    });
  });

  it('a repeat with the same idempotency key adds nothing', async () => {
    const { id: app } = await bench.app();
    const body = { domain: freshName() };
    const headers = { 'idempotency-key': randomUUID() };
    const first = await bench.api('POST', `apps/${app}/domains`, body, bench.key, headers);
    const again = await bench.api('POST', `apps/${app}/domains`, body, bench.key, headers);
    expect([first.status, again.status, again.body.id]).toEqual([201, 201, first.body.id]);
  });

  it('a deleted app takes its domains along; a dns that is away is asked until it answers', async () => {
    const { id: app } = await bench.app();
    const name = freshName();
    dns.zones.set(`${bench.account} ${name}.`, 'active');
    const { body } = await add(app, name);
    await becomes(app, body.id, { status: 'active' });
    dns.away = true;
    expect((await bench.api('DELETE', `apps/${app}`)).status).toBe(204);
    expect(await routeOf(name)).toBeUndefined();
    // The name is free for another app while its record is still there.
    const { id: second } = await bench.app();
    expect((await add(second, name)).status).toBe(201);
    dns.away = false;
    await eventually('the record is the new one’s', async () => {
      const record = dns.records.get(`${name}. A`);
      return record !== undefined && record.owner !== `app_domain:${body.id}`;
    });
    await eventually('nothing is left of the old one', async () => {
      const rows = await bench.sql('select 1 from app_domain where id = $1', [body.id]);
      return rows.length === 0;
    });
  });
});
