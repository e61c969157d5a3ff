import { randomUUID } from 'node:crypto';
import type { KeyIdentity } from '@nebo/contracts';
import type { ServiceTarget, TargetAnswer } from '@nebo/service-kit';
import { Readable } from 'node:stream';
import { type Billing, startBilling } from '../../test/billing.js';

describe('projects', () => {
  let billing: Billing;
  beforeAll(async () => {
    billing = await startBilling();
  });
  afterAll(() => billing?.close());

  const create = (as: KeyIdentity, body: object, headers?: Record<string, string>) =>
    billing.api('POST', 'projects', as, body, headers);
  const names = async (as: KeyIdentity) =>
    (await billing.api('GET', 'projects', as)).body.data.map((row: { name: string }) => row.name);

  it('200 lists with count and total, oldest first; an offset past the end is an empty page', async () => {
    const { as, project_id } = await billing.account();
    for (const name of ['one', 'two', 'three']) await create(as, { name });
    const page = await billing.api('GET', 'projects?limit=2&offset=0', as);
    expect(page).toMatchObject({ status: 200, body: { limit: 2, offset: 0, count: 2, total: 4 } });
    expect(page.body.data[0]).toEqual({ id: project_id, name: 'default', description: null, emoji: null });
    expect((await billing.api('GET', 'projects?limit=2&offset=4', as)).body).toMatchObject({
      data: [],
      count: 0,
      total: 4,
    });
    for (const query of ['limit=0', 'limit=201', 'limit=1e2', 'offset=-1', 'offset=9223372036854775808']) {
      expect((await billing.api('GET', `projects?${query}`, as)).status).toBe(422);
    }
  });

  it('201 creates and answers what was sent; the next read shows it', async () => {
    const { as } = await billing.account();
    const made = await create(as, { name: 'Магазин ', description: 'shop', emoji: '🛒', unknown: 1 });
    expect(made).toMatchObject({ status: 201, body: { name: 'Магазин ', description: 'shop', emoji: '🛒' } });
    expect((await billing.api('GET', `projects/${made.body.id}`, as)).body).toEqual(made.body);
    expect((await billing.api('GET', `projects/${made.body.id.toUpperCase()}`, as)).body).toEqual(made.body);
  });

  it('409 name_taken without case, also in Cyrillic and on rename; free again after deletion', async () => {
    const { as, project_id } = await billing.account();
    const { id } = (await create(as, { name: 'Ёлка' })).body;
    expect(await create(as, { name: 'ёЛКА' })).toMatchObject({
      status: 409,
      body: { error: { code: 'name_taken' } },
    });
    expect((await billing.api('PATCH', `projects/${project_id}`, as, { name: 'ёлка' })).status).toBe(409);
    expect((await billing.api('PATCH', `projects/${id}`, as, { name: 'ЁЛКА' })).body.name).toBe('ЁЛКА');
    expect((await billing.api('DELETE', `projects/${id}`, as)).status).toBe(204);
    expect((await create(as, { name: 'ёлка' })).status).toBe(201);
  });

  it('422 for wrong bodies with the fields named; 400 for broken JSON; 415 for another type; 413 for too much', async () => {
    const { as } = await billing.account();
    expect(await create(as, {})).toMatchObject({
      status: 422,
      body: { error: { code: 'validation_error' }, detail: [{ loc: ['body', 'name'] }] },
    });
    for (const name of ['', '  ', 'x'.repeat(256), 5, null, 'a\u0000b'])
      expect((await create(as, { name })).status).toBe(422);
    const send = (payload: string, type: string) =>
      billing.nebo.request('identity-billing', {
        method: 'POST',
        path: '/v1/projects',
        as,
        body: Buffer.from(payload),
        headers: { 'content-type': type },
      });
    expect((await send('{"name"', 'application/json')).status).toBe(400);
    expect((await send('name=x', 'application/x-www-form-urlencoded')).status).toBe(415);
    expect((await send(JSON.stringify({ name: 'x'.repeat(2_000_000) }), 'application/json')).status).toBe(
      413,
    );
  });

  it('PATCH changes what is given: null clears, absent stays', async () => {
    const { as } = await billing.account();
    const { id } = (await create(as, { name: 'p', description: 'd', emoji: '🙂' })).body;
    expect((await billing.api('PATCH', `projects/${id}`, as, { description: null })).body).toEqual({
      id,
      name: 'p',
      description: null,
      emoji: '🙂',
    });
    expect((await billing.api('PATCH', `projects/${id}`, as, {})).body).toEqual({
      id,
      name: 'p',
      description: null,
      emoji: '🙂',
    });
    expect((await billing.api('PATCH', `projects/${id}`, as, { name: null })).status).toBe(422);
  });

  it("404 for another account's project, an unknown one and what is no id, with the same body; 401 without a key", async () => {
    const { as } = await billing.account();
    const other = await billing.account();
    const bodies = new Set<string>();
    for (const id of [other.project_id, randomUUID(), 'nothing', '%00']) {
      for (const method of ['GET', 'PATCH', 'DELETE']) {
        const answer = await billing.api(method, `projects/${id}`, as, method === 'PATCH' ? {} : undefined);
        expect(answer.status).toBe(404);
        bodies.add(answer.text);
      }
    }
    expect(bodies.size).toBe(1);
    expect((await billing.nebo.request('identity-billing', { path: '/v1/projects', as: null })).status).toBe(
      401,
    );
    expect((await billing.internal('GET', `owners/project/${other.project_id}`)).body).toEqual({
      account_id: other.account_id,
      project_id: other.project_id,
      parents: [],
    });
    expect((await billing.internal('GET', `owners/project/${randomUUID()}`)).status).toBe(404);
    expect((await billing.internal('GET', 'owners/project/x')).status).toBe(404);
  });

  it('the list shows what the policy and the allow-list show, and counts only that', async () => {
    const { as, project_id } = await billing.account();
    const a = (await create(as, { name: 'a' })).body.id as string;
    const b = (await create(as, { name: 'b' })).body.id as string;
    const seen = async (policy: KeyIdentity['policy'], project_ids: string[] | null = null) => {
      const { body } = await billing.api('GET', 'projects', { ...as, policy, project_ids });
      expect(body.total).toBe(body.data.length);
      return body.data.map((row: { id: string }) => row.id);
    };
    const allow = (...resources: string[]) => ({
      effect: 'allow' as const,
      actions: ['project:read'],
      resources,
    });
    const deny = (...resources: string[]) => ({ effect: 'deny' as const, actions: ['*'], resources });
    expect(await seen([allow('*')])).toEqual([project_id, a, b]);
    expect(await seen([allow(`project:${a.toUpperCase()}`)])).toEqual([a]);
    expect(await seen([allow('*'), deny(`project:${a}`)])).toEqual([project_id, b]);
    expect(await seen([allow('*')], [b])).toEqual([b]);
    expect(await seen([allow(`project:${a}`)], [b])).toEqual([]);
    expect(await seen([{ effect: 'allow', actions: ['app:*'], resources: ['*'] }])).toEqual([]);
    expect(await seen([allow(`project:${'-'.repeat(36)}`)])).toEqual([]);
  });

  it('DELETE asks the services that keep things in projects: 409 while any is there, 503 when one is away', async () => {
    const { as } = await billing.account();
    const { id } = (await create(as, { name: 'full' })).body;
    const answers: (Omit<TargetAnswer, 'headers' | 'body'> & { text: string })[] = [
      { status: 200, text: '{"count":2}' },
      { status: 500, text: 'oops' },
      { status: 404, text: '{"error":{"code":"unknown_operation","message":"none"}}' },
    ];
    const asked: string[] = [];
    const target = {
      call: async ({ path }: { path: string }) => {
        asked.push(path);
        const { status, text } = answers.shift()!;
        return { status, headers: {}, body: Readable.from([Buffer.from(text)]) };
      },
      close: async () => undefined,
    } as unknown as ServiceTarget;
    billing.nebo.runtime.targets.set('apps-builder', target);
    expect(await billing.api('DELETE', `projects/${id}`, as)).toMatchObject({
      status: 409,
      body: { error: { code: 'project_not_empty' } },
    });
    expect((await billing.api('DELETE', `projects/${id}`, as)).status).toBe(503);
    expect((await billing.api('DELETE', `projects/${id}`, as)).status).toBe(204);
    expect(asked).toEqual([1, 2, 3].map(() => `/internal/v1/projects/${id}/usage`));
    expect((await billing.api('DELETE', `projects/${id}`, as)).status).toBe(404);
  });

  it('404 for a PATCH whose project is deleted meanwhile', async () => {
    const { as, project_id } = await billing.account();
    const other = await billing.connect();
    try {
      await other.query('begin');
      await other.query('delete from project where id = $1', [project_id]);
      const patch = billing.api('PATCH', `projects/${project_id}`, as, { name: 'late' });
      const waits = `select 1 from pg_stat_activity where wait_event_type = 'Lock' and query ilike '%update%project%'`;
      while ((await billing.sql(waits)).length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
      await other.query('commit');
      expect(await patch).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } });
    } finally {
      other.release();
    }
  });

  it('while a project is being deleted nobody is told that something can be put into it', async () => {
    const { as } = await billing.account();
    const { id } = (await create(as, { name: 'contested' })).body;
    const settled = () => billing.internal('GET', `owners/project/${id}?settled=true`);
    expect((await settled()).status).toBe(200);
    const ordered = async () => {
      const order = { operation_id: randomUUID(), account_id: as.account_id, kind: 'control', amount: '0' };
      const prices = [] as object[];
      const answer = await billing.money('reserve', { ...order, description: 'x', prices, project_id: id });
      return answer.body.error?.code ?? answer.status;
    };
    expect(await ordered()).toBe(200);
    for (const [count, status] of [
      [1, 200],
      [0, 404],
    ] as const) {
      const during: number[] = [];
      billing.nebo.runtime.targets.set('apps-builder', {
        call: async () => {
          // The deletion asks its keepers here, before it commits.
          expect(await ordered()).toBe('project_busy');
          during.push(
            (await settled()).status,
            (await billing.internal('GET', `owners/project/${id}`)).status,
          );
          return { status: 200, headers: {}, body: Readable.from([Buffer.from(`{"count":${count}}`)]) };
        },
        close: async () => undefined,
      } as unknown as ServiceTarget);
      expect((await billing.api('DELETE', `projects/${id}`, as)).status).toBe(count > 0 ? 409 : 204);
      expect(during).toEqual([409, 200]);
      expect((await settled()).status).toBe(status);
      expect(await ordered()).toBe(status === 200 ? 200 : 'not_found');
    }
  });

  it('an Idempotency-Key makes one project: a repeat answers the same, another body is 422', async () => {
    const { as } = await billing.account();
    const headers = { 'idempotency-key': randomUUID() };
    const first = await create(as, { name: 'once', emoji: null }, headers);
    const repeat = await create(as, { emoji: null, name: 'once' }, headers);
    expect(repeat).toMatchObject({ status: 201 });
    expect(repeat.body).toEqual(first.body);
    expect((await create(as, { name: 'other' }, headers)).body.error.code).toBe('idempotency_key_reused');
    expect((await create({ ...as, key_id: randomUUID() }, { name: 'once' }, headers)).status).toBe(409);
    expect((await create(as, { name: 'x' }, { 'idempotency-key': 'x'.repeat(256) })).status).toBe(400);
    expect(await names(as)).toEqual(['default', 'once']);
  });

  it('20 concurrent duplicates of one Idempotency-Key make one project', async () => {
    const { as } = await billing.account();
    const headers = { 'idempotency-key': randomUUID() };
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => create(as, { name: 'race' }, headers)),
    );
    const made = answers.filter((answer) => answer.status === 201);
    expect(new Set(made.map((answer) => answer.body.id)).size).toBe(1);
    for (const answer of answers)
      if (answer.status !== 201) expect(answer.body.error.code).toBe('idempotency_in_progress');
    expect(await names(as)).toEqual(['default', 'race']);
  });

  it('32 concurrent creations of one name: one 201, the others 409', async () => {
    const { as } = await billing.account();
    const answers = await Promise.all(Array.from({ length: 32 }, () => create(as, { name: 'same' })));
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(31);
  });
});
