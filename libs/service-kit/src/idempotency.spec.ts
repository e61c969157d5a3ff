import { randomUUID } from 'node:crypto';
import { commonMigrations, Database, migrate, roleUrl } from '@nebo/persistence';
import { freshDatabase, sharedPostgres } from '@nebo/test-kit';
import { once } from './idempotency.js';
import { canonical } from './request.js';
import { MasterKey } from './secrets.js';

const vault = new MasterKey(Buffer.alloc(32, 7));

describe('idempotency', () => {
  let database: Database;
  let effects = 0;

  beforeAll(async () => {
    const url = await freshDatabase();
    await migrate(url, [{ schema: 'things', migrations: [commonMigrations], password: 'secret' }]);
    database = new Database({ url: roleUrl(url, 'things', 'secret'), schema: 'things', max: 25 });
  });
  afterAll(async () => {
    await database?.close();
    await (await sharedPostgres()).stop();
  });
  beforeEach(() => (effects = 0));

  const post = (key: string, hash = 'h', delayMs = 0, secret = false) =>
    database.transaction((tx) =>
      once(tx, { scope: 'a|k|POST|/v1/x', key, hash, vault }, async () => {
        if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
        effects += 1;
        const id = randomUUID();
        return { status: 201, body: { id }, ...(secret ? { secretOf: id } : {}) };
      }),
    );

  it('answers a repeat with the first answer, byte for byte, and makes nothing', async () => {
    const key = randomUUID();
    const first = await post(key);
    expect(await post(key)).toEqual({ status: 201, body: first.body, repeated: true });
    expect(effects).toBe(1);
  });

  it('keeps no answer in the clear, and still repeats what an earlier version kept', async () => {
    const key = randomUUID();
    const { body } = await post(key);
    const kept = await database.transaction((tx) =>
      tx.query<{ body: string }>('select body::text as body from idempotency_key where key = $1', [key]),
    );
    expect(kept[0]!.body).toMatch(/^"[A-Za-z0-9+/=]+"$/);
    expect(Buffer.from(kept[0]!.body, 'base64').toString('latin1')).not.toContain(body.id);
    await database.transaction((tx) =>
      tx.query(`update idempotency_key set body = '{"id":"old"}' where key = $1`, [key]),
    );
    expect((await post(key)).body).toEqual({ id: 'old' });
  });

  it('422 for the same key with another content', async () => {
    const key = randomUUID();
    await post(key);
    await expect(post(key, 'other')).rejects.toMatchObject({ status: 422, code: 'idempotency_key_reused' });
  });

  it('of 20 at once one has the effect; the others are told that it runs, or get its answer', async () => {
    const key = randomUUID();
    const results = await Promise.allSettled(Array.from({ length: 20 }, () => post(key, 'h', 50)));
    const made = results.filter((result) => result.status === 'fulfilled');
    const refused = results.filter((result) => result.status === 'rejected');
    expect(effects).toBe(1);
    expect(made.length + refused.length).toBe(20);
    expect(refused.every(({ reason }) => reason.code === 'idempotency_in_progress')).toBe(true);
    expect(new Set(made.map(({ value }) => value.body.id)).size).toBe(1);
  });

  it('keeps nothing of an effect that failed', async () => {
    const key = randomUUID();
    const failing = database.transaction((tx) =>
      once(tx, { scope: 's', key, hash: 'h', vault }, () => Promise.reject(new Error('no money'))),
    );
    await expect(failing).rejects.toThrow('no money');
    const rows = await database.query('select 1 from idempotency_key where key = $1', [key]);
    expect(rows).toEqual([]);
  });

  it('an answer with a secret is not kept: the repeat is 409 with the id', async () => {
    const key = randomUUID();
    const { body } = await post(key, 'h', 0, true);
    await expect(post(key)).rejects.toMatchObject({
      status: 409,
      code: 'already_created',
      message: expect.stringContaining(body.id),
    });
    const [row] = await database.query<{ body: unknown }>('select body from idempotency_key where key = $1', [
      key,
    ]);
    expect(row!.body).toBeNull();
  });

  it('the same content in another order has the same hash text', () => {
    expect(canonical({ b: [1, { d: 1, c: undefined }], a: null })).toBe(
      canonical({ a: null, b: [1, { c: undefined, d: 1 }] }),
    );
  });
});
