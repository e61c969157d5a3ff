import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { get } from 'node:http';
import { relative } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { packFolder } from '@nebo/archive';
import { parseRubles } from '@nebo/contracts';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { filesBelow, hastyPost, Operator } from '../harness/attacker.js';
import { Nebo, root, until } from '../harness/nebo.js';

/** Size of every attack here; more with NEBO_PROOF: 50 is that of the bars (`npm run proof -- attack`). */
const size = Number(process.env['NEBO_PROOF'] || 10);

const contract = new ContractCheck(readContract('v1'));
type Ids = Record<string, string>;

/** What many requests at once try, and what stays behind of them. See attack.spec.ts for those that one request tries. */
describe('attacks with many requests', () => {
  let nebo: Nebo;
  let operator: Operator;
  let owner: Api;
  let key: string;
  let account: string;
  let folder: Buffer;

  beforeAll(async () => {
    nebo = await Nebo.start({ NEBO_RATE_LIMIT: '0', NEBO_LOG_LEVEL: 'debug' });
    operator = new Operator(nebo);
    const [demo] = nebo.credentials.accounts;
    ({ api_key: key, account_id: account } = demo!);
    owner = new Api(nebo.credentials.base_url, key, contract);
    folder = await buffer((await packFolder(`${root}/e2e/fixtures/static-site`)).stream);
  });
  afterAll(() => nebo?.dispose());

  const upload = (api: Api, path: string) =>
    api.call('POST', path, { raw: folder, headers: { 'content-type': 'application/gzip' } });

  /** One thing of every kind. */
  const things = async (api: Api): Promise<Ids> => {
    const project_id: string = (await api.post('/projects', { name: randomUUID() })).body.id;
    const app = { name: 'app', source_type: 'upload' };
    const app_id: string = (await api.post(`/projects/${project_id}/apps`, app)).body.id;
    const env_var_id: string = (await api.post(`/apps/${app_id}/env`, { name: 'A', value: '1' })).body.id;
    return {
      project_id,
      app_id,
      env_var_id,
      build_id: (await upload(api, `/apps/${app_id}/deployments`)).body.id,
    };
  };
  it(`${size} keys, each 20 times at once with clients that leave: one thing each, byte-identical repeats`, async () => {
    const { project_id, app_id } = await things(owner);
    const once = async (path: string, body: (n: number) => object) => {
      await Promise.all(
        Array.from({ length: size }, async (_, n) => {
          const headers = { authorization: `Bearer ${key}`, 'idempotency-key': `${path}-${n}` };
          const post = (leave: number | null) =>
            hastyPost(`${owner.baseUrl}${path}`, headers, body(n), leave);
          const answers = await Promise.all(
            Array.from({ length: 20 }, () => post(Math.random() < 0.4 ? Math.random() * 150 : null)),
          );
          for (const { status } of answers) expect([0, 201, 409]).toContain(status);
          await until(async () => {
            answers.push(await post(null));
            return answers.at(-1)!.status === 201;
          });
          const made = answers.filter(({ status }) => status === 201).map(({ text }) => text);
          expect(new Set(made).size).toBe(1);
        }),
      );
    };
    await once(`/projects/${project_id}/apps`, (n) => ({ name: `once ${n}`, source_type: 'upload' }));
    await once(`/apps/${app_id}/env`, (n) => ({ name: `ONCE_${n}`, value: 'v', is_secret: n % 2 === 0 }));
    expect((await owner.get(`/projects/${project_id}/apps`)).body.total).toBe(size + 1);
    expect((await owner.get(`/apps/${app_id}/env?limit=200`)).body.total).toBe(size + 1);
  });

  it(`race: ${size} projects deleted while apps are made in them: never an app without its project`, async () => {
    const results = await Promise.all(
      Array.from({ length: size }, async (_, n) => {
        const { id } = (await owner.post('/projects', { name: `gone ${n}` })).body;
        const make = () => owner.post(`/projects/${id}/apps`, { name: randomUUID(), source_type: 'upload' });
        const [gone, ...made] = await Promise.all([owner.delete(`/projects/${id}`), make(), make(), make()]);
        const apps = made.filter(({ status }) => status === 201).length;
        for (const { status } of made) expect([201, 404, 409]).toContain(status);
        const list = await owner.get(`/projects/${id}/apps`);
        if (gone.status === 204) {
          expect([list.status, apps, (await make()).status]).toEqual([404, 0, 404]);
        } else expect([gone.status, list.body.total]).toEqual([409, apps]);
        return gone.status;
      }),
    );
    expect(results).toHaveLength(size);
  });

  it(`${4 * size} requests at once on a small balance never overspend; clients that leave leave no hold behind`, async () => {
    const { account_id } = await operator.post('account-create', { name: 'thrifty', topup: '1' });
    const control = owner.as((await operator.post('key-create', { account: account_id })).key);
    const { key: inference } = await operator.post('inference-key-create', { account: account_id });
    const balance = async () => {
      const { body } = await control.get('/account/balance');
      return { balance: parseRubles(body.balance), available: parseRubles(body.available) };
    };
    const url = `${nebo.credentials.ai_url}/v1/chat/completions`;
    const ask = (stream: boolean, leave: number | null = null) =>
      hastyPost(
        url,
        { authorization: `Bearer ${inference}` },
        {
          model: 'glm-5.3',
          max_tokens: 2_000,
          stream,
          messages: [{ role: 'user', content: 'data: [DONE]\n\nevent: x\n\n' }],
        },
        leave,
      );
    for (const stream of [false, true]) {
      let over = false;
      const watch = (async () => {
        while (!over) {
          const { balance: left, available } = await balance();
          expect(left >= 0n && available >= 0n && available <= left).toBe(true);
        }
      })();
      const answers = await Promise.all(Array.from({ length: 4 * size }, () => ask(stream)));
      over = true;
      await watch;
      const good = answers.filter(({ status }) => status === 200);
      expect(good.length).toBeGreaterThan(0);
      for (const { status } of answers) expect([200, 402]).toContain(status);
      // What a model says is data: its line feeds end no event.
      if (stream)
        for (const { text } of good)
          expect([text.match(/^data: \[DONE\]$/gm)!.length, /^event:/m.test(text)]).toEqual([1, false]);
    }
    await Promise.all(Array.from({ length: 4 * size }, (_, n) => ask(n % 2 === 0, Math.random() * 400)));
    type Line = { amount: string; held_amount: string };
    let data: Line[] = [];
    const paid = () => data.reduce((sum, { amount }) => sum + parseRubles(amount), 0n);
    // Answers whose clients left may still be read to their counters; `available` knows what is in use as last heard.
    await until(async () => {
      const before = await balance();
      ({ data } = (await control.get('/account/ledger?limit=200')).body as { data: Line[] });
      const after = await balance();
      return (
        before.balance === after.balance && after.balance === after.available && paid() === after.balance
      );
    }, 30_000);
    expect(data.length).toBeLessThan(200);
    expect(data.reduce((sum, { held_amount }) => sum + parseRubles(held_amount), 0n)).toBe(0n);
  });

  it(`${30 * size} streams that say nothing cost next to nothing`, async () => {
    const { app_id } = await things(owner);
    const memory = () =>
      Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${nebo.pid}/status`, 'utf8'))![1]) / 1_024;
    const before = existsSync('/proc/self/status') ? memory() : null;
    const open = (n: number) =>
      new Promise<{ destroy(): void }>((resolve, reject) => {
        const path = `${owner.baseUrl}/apps/${app_id}/${n % 2 === 0 ? 'events' : 'logs'}`;
        const request = get(
          path,
          { agent: false, headers: { authorization: `Bearer ${key}` } },
          (response) => {
            response.on('error', () => undefined).resume();
            resolve(request);
          },
        );
        request.on('error', reject);
      });
    const streams = await Promise.all(Array.from({ length: 30 * size }, (_, n) => open(n)));
    const began = performance.now();
    for (let times = 0; times < 20; times += 1) expect((await owner.get(`/apps/${app_id}`)).status).toBe(200);
    // A loaded machine needs its time; a process that is held up needs much more.
    expect((performance.now() - began) / 20).toBeLessThan(1_000);
    if (before !== null) expect(memory() - before).toBeLessThan(150);
    for (const stream of streams) stream.destroy();
  });

  it('secrets are in no log, no table, no answer and no file but the three that are for them', async () => {
    const secret = `canary${randomBytes(12).toString('hex')}`;
    const ordinary = `canary${randomBytes(12).toString('hex')}`;
    const { app_id } = await things(owner);
    const headers = () => ({ headers: { 'idempotency-key': randomUUID() } });
    const answers = [
      await owner.post(`/apps/${app_id}/env`, { name: 'S', value: secret, is_secret: true }, headers()),
      await owner.get(`/apps/${app_id}/env`),
      await owner.post(`/apps/${app_id}/env`, { name: 'S', value: [secret], is_secret: true }),
      await owner.post(`/apps/${app_id}/env`, { name: `=${secret}`, value: secret }),
      await owner.get(`/apps?limit=${secret}`),
    ];
    for (const { text } of answers) expect(text).not.toContain(secret);
    await owner.post(`/apps/${app_id}/env`, { name: 'O', value: ordinary }, headers());
    const build = (await upload(owner, `/apps/${app_id}/deployments`)).body.id as string;
    await until(
      async () =>
        (await owner.get(`/apps/${app_id}/builds/${build}?wait=live&timeout=20`)).body.deploy_state ===
        'live',
    );
    const minted = (await operator.post('key-create', { account })).key as string;
    for (const wrong of [minted, operator.token, `${key}x`]) await owner.as(wrong).get('/account');
    const [demo] = nebo.credentials.accounts;
    const region = readFileSync(`${nebo.home}/region.token`, 'utf8').trim();
    const needles = {
      secret,
      ordinary,
      minted,
      key,
      inference: demo!.inference_key,
      region,
      operator: operator.token,
      master: readFileSync(`${nebo.home}/master.key`, 'utf8').trim(),
    };
    const inIt = (text: string) =>
      Object.entries(needles)
        .filter(([, value]) =>
          [
            value,
            Buffer.from(value).toString('hex'),
            Buffer.from(value).toString('base64').replace(/=+$/, '').slice(0, -1),
          ].some((form) => text.includes(form)),
        )
        .map(([name]) => name);
    // The first lines are for the person who starts it, keys included; the log is JSON.
    expect(
      inIt(
        nebo.output
          .split('\n')
          .filter((line) => line.startsWith('{'))
          .join('\n'),
      ),
    ).toEqual([]);
    const rows = await operator.rows();
    expect(rows.length).toBeGreaterThan(100);
    expect(
      rows.map(({ table, text }) => [table, inIt(text)]).filter(([, found]) => found!.length > 0),
    ).toEqual([]);
    const files = filesBelow(nebo.home)
      .map(
        (path) =>
          [relative(nebo.home, path), existsSync(path) ? inIt(readFileSync(path, 'latin1')) : []] as const,
      )
      .filter(([, found]) => found.length > 0);
    expect(Object.fromEntries(files)).toEqual({
      'credentials.json': ['key', 'inference'],
      'master.key': ['master'],
      'region.token': ['region'],
    });
  });
});
