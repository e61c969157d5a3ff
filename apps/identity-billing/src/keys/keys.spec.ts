import { randomUUID } from 'node:crypto';
import { keyForm } from '@nebo/contracts';
import { type Billing, startBilling } from '../../test/billing.js';

const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

describe('key form', () => {
  const form = keyForm('nebo_live_');

  it('is prefix, 43 random digits and six of a checksum; no two are alike', () => {
    const keys = Array.from({ length: 500 }, () => form.generate());
    expect(new Set(keys).size).toBe(500);
    for (const key of keys) {
      expect(key).toMatch(/^nebo_live_[0-9A-Za-z]{49}$/);
      expect(form.matches(key)).toBe(true);
    }
  });

  it('refuses every single wrong digit, swapped neighbours, other lengths and other prefixes', () => {
    const key = form.generate();
    for (let at = 0; at < key.length; at += 1) {
      const wrong = digits[(digits.indexOf(key[at]!) + 1) % 62]!;
      expect(form.matches(key.slice(0, at) + wrong + key.slice(at + 1))).toBe(false);
      const swapped = key.slice(0, at) + (key[at + 1] ?? '') + key[at]! + key.slice(at + 2);
      expect(form.matches(swapped)).toBe(swapped === key);
    }
    for (const text of [
      '',
      'nebo_live_',
      key.slice(0, -1),
      `${key}0`,
      ` ${key}`,
      keyForm('neboai_live_').generate(),
    ]) {
      expect(form.matches(text)).toBe(false);
    }
  });
});

describe('keys', () => {
  let billing: Billing;
  beforeAll(async () => {
    billing = await startBilling();
  });
  afterAll(() => billing?.close());

  const hashOf = (key: string) => billing.nebo.runtime.masterKey.hashKey(key).toString('base64url');
  const resolve = (key: string) => billing.internal('POST', 'keys/resolve', { hash: hashOf(key) });

  it('a control key resolves to its account, policy, allow-list and the live role of its issuer', async () => {
    const { account_id, project_id } = await billing.account();
    const made = await billing.admin('key-create', {
      account: account_id,
      actions: ['app:*'],
      resources: ['*'],
      projects: [project_id],
      name: 'ci',
    });
    expect(made).toMatchObject({
      status: 201,
      body: { account_id, kind: 'control', name: 'ci', state: 'active', last_four: made.body.key.slice(-4) },
    });
    expect(made.body.key).toMatch(/^nebo_live_/);
    expect(made.body.key.startsWith(made.body.prefix)).toBe(true);
    expect(await resolve(made.body.key)).toMatchObject({
      status: 200,
      body: {
        key_kind: 'control',
        version: 1,
        identity: {
          kind: 'key',
          account_id,
          key_id: made.body.id,
          role: 'owner',
          project_ids: [project_id],
          policy: [{ effect: 'allow', actions: ['app:*'], resources: ['*'] }],
        },
      },
    });
  });

  it('an inference key resolves to its models and limit', async () => {
    const { account_id } = await billing.account();
    const made = (
      await billing.admin('inference-key-create', {
        account: account_id,
        monthly_limit: '12.5',
        models: ['glm-5.3'],
      })
    ).body;
    expect(made.key).toMatch(/^neboai_live_/);
    expect((await resolve(made.key)).body).toEqual({
      key_kind: 'inference',
      version: 1,
      identity: {
        kind: 'inference',
        account_id,
        key_id: made.id,
        models: ['glm-5.3'],
        monthly_limit: '12500000000',
      },
    });
    const open = (await billing.admin('inference-key-create', { account: account_id })).body;
    expect((await resolve(open.key)).body.identity).toMatchObject({ models: null, monthly_limit: null });
  });

  it('404 for unknown and revoked keys and closed accounts; a disabled key comes back, a revoked one never', async () => {
    const { account_id } = await billing.account();
    const { key, id } = (await billing.admin('inference-key-create', { account: account_id })).body;
    expect((await resolve(`${key}x`)).status).toBe(404);
    expect((await billing.admin('inference-key-disable', { key: id })).body.state).toBe('disabled');
    expect((await resolve(key)).status).toBe(404);
    expect((await billing.admin('inference-key-enable', { key: id.toUpperCase() })).body.state).toBe(
      'active',
    );
    expect((await resolve(key)).body.version).toBe(3);
    expect((await billing.admin('key-revoke', { key: id })).status).toBe(404);
    expect((await billing.admin('inference-key-revoke', { key: id })).body.state).toBe('revoked');
    expect((await billing.admin('inference-key-revoke', { key: id })).status).toBe(200);
    expect((await resolve(key)).status).toBe(404);
    expect((await billing.admin('inference-key-enable', { key: id })).body.error.code).toBe('key_revoked');
    const control = (await billing.admin('key-create', { account: account_id })).body;
    await billing.sql("update account set state = 'closed' where id = $1", [account_id]);
    expect((await resolve(control.key)).status).toBe(404);
  });

  it('a change of role or policy shows at the next lookup', async () => {
    const { account_id, owner_id } = await billing.account();
    const member = (
      await billing.admin('member-add', { account: account_id, name: 'Dev', role: 'developer' })
    ).body;
    const { key, id } = (await billing.admin('key-create', { account: account_id, member: member.id })).body;
    expect((await resolve(key)).body.identity.role).toBe('developer');
    await billing.admin('member-role', { member: member.id, role: 'reader' });
    expect((await resolve(key)).body.identity.role).toBe('reader');
    const policy = [{ effect: 'deny', actions: ['vm:*'], resources: ['*'] }];
    expect((await billing.admin('key-policy', { key: id, policy })).body).toMatchObject({
      policy,
      version: 2,
    });
    expect((await resolve(key)).body).toMatchObject({ version: 2, identity: { policy } });
    expect((await billing.admin('member-role', { member: owner_id, role: 'reader' })).body.error.code).toBe(
      'last_owner',
    );
  });

  it('says each change as an event with the hash of the key, in the transaction of the change', async () => {
    const { account_id } = await billing.account();
    const { key, id } = (await billing.admin('key-create', { account: account_id })).body;
    // Events of other tests may still be on their way.
    const heard: { account: unknown; data: { key_id: string; state: string } }[] = [];
    const own = () => heard.filter(({ data }) => data.key_id === id);
    const subscription = await billing.nebo.runtime.bus.subscribeAll(
      'nebo.identity-billing.key.changed.v1',
      (event) => {
        heard.push({ account: event.account, data: event.data as { key_id: string; state: string } });
      },
    );
    await billing.admin('key-disable', { key: id });
    await billing.admin('key-enable', { key: id });
    await billing.admin('key-revoke', { key: id });
    for (let waited = 0; own().at(-1)?.data.state !== 'revoked' && waited < 100; waited += 1)
      await new Promise((resolved) => setTimeout(resolved, 50));
    await subscription.close();
    expect(own()).toEqual(
      ['disabled', 'active', 'revoked'].map((state) => ({
        account: account_id,
        data: { key_id: id, hash: hashOf(key), state },
      })),
    );
  });

  it('422 for wrong policies, 404 for foreign projects, members and accounts; nothing is made then', async () => {
    const { account_id } = await billing.account();
    const other = await billing.account();
    for (const body of [
      { actions: ['vm:fly'] },
      { resources: ['everything'] },
      { policy: [] },
      { policy: [{ effect: 'maybe', actions: ['*'], resources: ['*'] }] },
      { policy: Array.from({ length: 51 }, () => ({ effect: 'allow', actions: ['*'], resources: ['*'] })) },
      {
        policy: [
          {
            effect: 'allow',
            actions: ['*'],
            resources: Array.from({ length: 300 }, () => `app:${randomUUID()}`),
          },
        ],
      },
      { policy: [{ effect: 'allow', actions: ['*'], resources: ['*'] }], actions: ['*'] },
      { projects: [] },
    ]) {
      expect((await billing.admin('key-create', { account: account_id, ...body })).status).toBe(422);
    }
    for (const body of [
      { projects: [other.project_id] },
      { projects: ['x'] },
      { member: other.owner_id },
      { account: randomUUID() },
    ]) {
      expect((await billing.admin('key-create', { account: account_id, ...body })).status).toBe(404);
    }
    expect((await billing.internal('GET', `operator/keys?account=${account_id}`)).body).toEqual({ data: [] });
    expect((await billing.internal('POST', 'keys/resolve', { hash: 'short' })).status).toBe(422);
  });

  it('422 for a field that is none: a misspelt limit never makes a key without one (maximhq/bifrost#5673)', async () => {
    const { account_id: account } = await billing.account();
    for (const [verb, wrong] of [
      ['inference-key-create', { monthly_limits: '10' }],
      ['inference-key-create', { budget: '10' }],
      ['key-create', { project_ids: [account] }],
    ] as const) {
      const refused = await billing.admin(verb, { account, ...wrong });
      expect(refused).toMatchObject({
        status: 422,
        body: { detail: [{ loc: ['body', Object.keys(wrong)[0]] }] },
      });
    }
    expect((await billing.internal('GET', `operator/keys?account=${account}`)).body).toEqual({ data: [] });
  });

  it('neither table, list, log of events nor audit holds a key', async () => {
    const { account_id, as } = await billing.account();
    const { key, id } = (await billing.admin('key-create', { account: account_id })).body;
    await billing.admin('key-revoke', { key: id });
    const secret = key.slice('nebo_live_'.length + 4, -4);
    const dump = [
      await billing.sql('select row_to_json(k)::text as t from api_key k'),
      await billing.sql('select row_to_json(a)::text as t from audit_entry a'),
      await billing.sql('select row_to_json(o)::text as t from outbox o'),
      (await billing.internal('GET', `operator/keys?account=${account_id}`)).text,
      (await billing.api('GET', 'audit-log', as)).text,
    ];
    expect(JSON.stringify(dump)).not.toContain(secret);
  });
});
