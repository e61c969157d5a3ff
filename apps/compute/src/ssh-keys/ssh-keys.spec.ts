import { createHash, generateKeyPairSync, randomUUID } from 'node:crypto';
import { keyOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, publicKey } from '../../test/harness.js';
import { parsePublicKey } from './public-key.js';

describe('SSH keys', () => {
  let bench: Bench;
  beforeAll(async () => {
    bench = await Bench.start();
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('201 with the fingerprint of the key, then it is read, listed and deleted', async () => {
    const line = publicKey();
    const made = await bench.api('POST', 'ssh-keys', { name: 'laptop', public_key: `${line}\n` });
    const digest = createHash('sha256')
      .update(Buffer.from(line.split(' ')[1]!, 'base64'))
      .digest('base64');
    expect(made).toMatchObject({
      status: 201,
      body: { name: 'laptop', public_key: line, fingerprint: `SHA256:${digest.replace(/=+$/, '')}` },
    });
    const { id } = made.body;
    expect((await bench.api('GET', `ssh-keys/${id.toUpperCase()}`)).body).toEqual(made.body);
    expect((await bench.api('GET', 'ssh-keys')).body).toEqual({
      data: [made.body],
      limit: 50,
      offset: 0,
      count: 1,
      total: 1,
    });
    expect((await bench.api('DELETE', `ssh-keys/${id}`)).status).toBe(204);
    expect((await bench.api('DELETE', `ssh-keys/${id}`)).status).toBe(404);
    expect((await bench.api('GET', `ssh-keys/${id}`)).status).toBe(404);
  });

  it('says what was done, for the audit log, in the transaction of the act', async () => {
    const { body } = await bench.api('POST', 'ssh-keys', { name: 'audited', public_key: publicKey() });
    await bench.api('DELETE', `ssh-keys/${body.id}`);
    const rows = await bench.sql<{ said: object }>(
      `select envelope->'data' as said from outbox where envelope->'data'->>'resource' = $1 order by seq`,
      [`ssh_key:${body.id}`],
    );
    const actor = `key:${bench.key.key_id}`;
    expect(rows.map(({ said }) => said)).toMatchObject([
      { actor, action: 'ssh_keys_create_ssh_key', project_id: null, details: { name: 'audited' } },
      { actor, action: 'ssh_keys_delete_ssh_key', details: { name: 'audited' } },
    ]);
  });

  it('409 for a key that the account has; another account may have it', async () => {
    const public_key = publicKey();
    expect((await bench.api('POST', 'ssh-keys', { name: 'a', public_key })).status).toBe(201);
    expect(
      await bench.api('POST', 'ssh-keys', { name: 'b', public_key: `${public_key} again` }),
    ).toMatchObject({
      status: 409,
      body: { error: { code: 'ssh_key_exists' } },
    });
    expect((await bench.api('POST', 'ssh-keys', { name: 'a', public_key }, bench.stranger)).status).toBe(201);
  });

  it.each([
    ['no key', 'hello'],
    ['two lines', `${publicKey()}\n${publicKey()}`],
    ['half a key', publicKey().slice(0, 40)],
    ['another type than its bytes', publicKey().replace('ssh-ed25519', 'ssh-rsa')],
    ['DSA', 'ssh-dss AAAAB3NzaC1kc3MAAACBAJ me'],
    [
      'a private key',
      generateKeyPairSync('ed25519').privateKey.export({ format: 'pem', type: 'pkcs8' }).toString(),
    ],
    ['options', `command="ls" ${publicKey()}`],
  ])('422 for %s', async (_what, public_key) => {
    const answer = await bench.api('POST', 'ssh-keys', { name: 'bad', public_key });
    expect(answer).toMatchObject({ status: 422, body: { detail: [{ loc: ['body', 'public_key'] }] } });
  });

  it('422 for a short RSA key and a name that is missing or blank', async () => {
    const { publicKey: short } = generateKeyPairSync('rsa', { modulusLength: 1024 });
    const { n, e } = short.export({ format: 'jwk' });
    const field = (bytes: Buffer) =>
      Buffer.concat([Buffer.from([0, 0, bytes.length >> 8, bytes.length & 255]), bytes]);
    const wire = Buffer.concat([
      field(Buffer.from('ssh-rsa')),
      field(Buffer.from(e!, 'base64url')),
      field(Buffer.concat([Buffer.from([0]), Buffer.from(n!, 'base64url')])),
    ]);
    expect(() => parsePublicKey(`ssh-rsa ${wire.toString('base64')}`)).toThrow(/too short/);
    expect((await bench.api('POST', 'ssh-keys', { public_key: publicKey() })).status).toBe(422);
    expect((await bench.api('POST', 'ssh-keys', { name: ' ', public_key: publicKey() })).status).toBe(422);
  });

  it('a repeat with the same Idempotency-Key answers the same and adds nothing', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const body = { name: 'once', public_key: publicKey() };
    const first = await bench.api('POST', 'ssh-keys', body, bench.key, headers);
    const again = await bench.api('POST', 'ssh-keys', body, bench.key, headers);
    expect(again).toMatchObject({ status: 201, body: first.body });
    const other = await bench.api('POST', 'ssh-keys', { ...body, name: 'x' }, bench.key, headers);
    expect(other).toMatchObject({ status: 422, body: { error: { code: 'idempotency_key_reused' } } });
  });

  it('401 without a key, 404 for another account and for what is no id; a list shows what the policy allows', async () => {
    const { body } = await bench.api('POST', 'ssh-keys', { name: 'mine', public_key: publicKey() });
    expect((await bench.api('GET', 'ssh-keys', undefined, null)).status).toBe(401);
    expect((await bench.api('GET', `ssh-keys/${body.id}`, undefined, bench.stranger)).status).toBe(404);
    expect((await bench.api('DELETE', `ssh-keys/${body.id}`, undefined, bench.stranger)).status).toBe(404);
    expect((await bench.api('GET', 'ssh-keys/nothing')).status).toBe(404);
    const allow = (effect: 'allow' | 'deny', resources: string[]) => ({
      effect,
      actions: ['ssh_key:read'],
      resources,
    });
    const only = keyOf(bench.account, { policy: [allow('allow', [`ssh_key:${body.id}`])] });
    expect((await bench.api('GET', 'ssh-keys', undefined, only)).body).toMatchObject({
      total: 1,
      data: [body],
    });
    const none = keyOf(bench.account, {
      policy: [{ effect: 'allow', actions: ['vm:read'], resources: ['*'] }],
    });
    expect((await bench.api('GET', 'ssh-keys', undefined, none)).body).toMatchObject({ total: 0, data: [] });
    const without = keyOf(bench.account, {
      policy: [allow('allow', ['*']), allow('deny', [`ssh_key:${body.id}`])],
    });
    const { data } = (await bench.api('GET', 'ssh-keys', undefined, without)).body;
    expect(data.map(({ id }: { id: string }) => id)).not.toContain(body.id);
    expect((await bench.internal('GET', `owners/ssh_key/${body.id}`)).body).toEqual({
      account_id: bench.account,
      project_id: null,
      parents: [],
    });
    expect((await bench.internal('GET', `owners/ssh_key/${randomUUID()}`)).status).toBe(404);
  });
});
