import { randomUUID } from 'node:crypto';
import { keyOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { GitBench } from '../../test/git-bench.js';

describe('git connections', () => {
  let git: GitBench;
  const api: GitBench['bench']['api'] = (...of) => git.bench.api(...of);
  const body = (more: Record<string, unknown> = {}) => ({
    provider: 'gitea',
    base_url: git.host.url,
    token: git.host.token,
    ...more,
  });

  beforeAll(async () => {
    git = await GitBench.start();
    await git.host.createRepository('ann/site');
    await git.host.createRepository('ann/open', { isPrivate: false });
  });
  afterAll(async () => {
    await git?.close();
    await (await sharedPostgres()).stop();
  });

  it('201 connects by a token that is tried, sealed and never shown', async () => {
    const {
      status,
      body: made,
      text,
    } = await api('POST', 'git/connections', body({ base_url: `${git.host.url}/` }));
    expect(status).toBe(201);
    expect(made).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      provider: 'gitea',
      base_url: git.host.url,
      login: 'ann',
      name: 'ann',
      auth: 'token',
      status: 'active',
      status_reason: null,
      created_at: expect.any(String),
      checked_at: expect.any(String),
    });
    expect(text).not.toContain(git.host.token);
    expect((await api('GET', `git/connections/${made.id}`)).text).not.toContain(git.host.token);
    const [row] = await git.bench.sql<{ all: string }>(
      "select encode(token_sealed, 'escape') || row_to_json(c)::text as all from git_connection c where id = $1",
      [made.id],
    );
    expect(row!.all).not.toContain(git.host.token);
  });

  it('201 with the id that is there renews the token of a connected account, also two at once', async () => {
    const first = await git.connect();
    git.host.tokens.add('token-two');
    const answers = await Promise.all(
      ['token-two', git.host.token, 'token-two'].map((token) =>
        api('POST', 'git/connections', body({ token, name: 'Work' })),
      ),
    );
    expect(answers.map(({ status, body: made }) => [status, made.id, made.name])).toEqual(
      Array.from({ length: 3 }, () => [201, first.id, 'Work']),
    );
    const list = await api('GET', 'git/connections');
    expect(list).toMatchObject({ status: 200, body: { count: 1, total: 1, data: [{ id: first.id }] } });
  });

  it('200 lists the repositories of a connection page by page', async () => {
    const { id } = await git.connect();
    const { status, body: page } = await api('GET', `git/connections/${id}/repositories?limit=1&offset=1`);
    expect([status, page]).toEqual([
      200,
      {
        data: [{ id: '2', full_name: 'ann/open', default_branch: 'main', private: false }],
        limit: 1,
        offset: 1,
        count: 1,
        total: 2,
      },
    ]);
    expect((await api('GET', `git/connections/${id}/repositories`)).body.count).toBe(2);
    expect((await api('GET', `git/connections/${id}/repositories?offset=700`)).body).toMatchObject({
      count: 0,
      total: 2,
    });
  });

  it('422 names what is wrong: the token, the address, the kind', async () => {
    const loc = async (more: Record<string, unknown>) => {
      const answer = await api('POST', 'git/connections', body(more));
      return [answer.status, answer.body.detail?.[0].loc.join('.')];
    };
    expect(await loc({ token: 'wrong' })).toEqual([422, 'body.token']);
    expect(await loc({ token: 'two words' })).toEqual([422, 'body.token']);
    expect(await loc({ token: '' })).toEqual([422, 'body.token']);
    expect(await loc({ base_url: null })).toEqual([422, 'body.base_url']);
    expect(await loc({ base_url: 'ftp://git.example.org' })).toEqual([422, 'body.base_url']);
    expect(await loc({ base_url: 'http://u:p@git.example.org' })).toEqual([422, 'body.base_url']);
    expect(await loc({ base_url: 'nonsense' })).toEqual([422, 'body.base_url']);
    // Private places are not asked, whatever answers there.
    expect(await loc({ base_url: 'https://127.0.0.1:1' })).toEqual([422, 'body.base_url']);
    expect(await loc({ base_url: 'https://169.254.169.254' })).toEqual([422, 'body.base_url']);
    expect(await loc({ base_url: `${git.host.url}/nowhere` })).toEqual([422, 'body.base_url']);
    expect(await loc({ provider: 'gitverse' })).toEqual([422, 'body.base_url']);
    expect(await loc({ provider: 'svn' })).toEqual([422, 'body.provider']);
  });

  it('503 while the git host is in trouble; nothing is made', async () => {
    const before = (await api('GET', 'git/connections')).body.total;
    git.host.trouble = 502;
    expect((await api('POST', 'git/connections', body({ name: 'x' }))).status).toBe(503);
    git.host.trouble = null;
    expect((await api('GET', 'git/connections')).body.total).toBe(before);
  });

  it('409 git_reconnect when the token is not taken any more, and the connection says what to do', async () => {
    const { id } = await git.connect();
    git.host.tokens.clear();
    const answer = await api('GET', `git/connections/${id}/repositories`);
    expect(answer).toMatchObject({ status: 409, body: { error: { code: 'git_reconnect' } } });
    expect((await api('GET', `git/connections/${id}`)).body).toMatchObject({
      status: 'error',
      status_reason: expect.stringContaining('reconnect'),
    });
    git.host.tokens.add('token-of-ann');
    expect(await git.connect()).toMatchObject({ id, status: 'active', status_reason: null });
  });

  it('404 for another account’s and for none; 204 forgets; twice is 404', async () => {
    const { id } = await git.connect();
    for (const path of [`git/connections/${id}`, `git/connections/${id}/repositories`])
      expect((await api('GET', path, undefined, git.bench.stranger)).status).toBe(404);
    expect((await api('DELETE', `git/connections/${id}`, undefined, git.bench.stranger)).status).toBe(404);
    expect((await api('GET', 'git/connections', undefined, git.bench.stranger)).body.total).toBe(0);
    for (const absent of [randomUUID(), 'x']) {
      expect((await api('GET', `git/connections/${absent}`)).status).toBe(404);
      expect((await api('DELETE', `git/connections/${absent}`)).status).toBe(404);
    }
    expect((await api('DELETE', `git/connections/${id}`)).status).toBe(204);
    expect((await api('DELETE', `git/connections/${id}`)).status).toBe(404);
    expect((await api('GET', `git/connections/${id}`)).status).toBe(404);
  });

  it('409 connection_in_use while an app is built through it', async () => {
    await git.host.push('ann/site', { files: { 'index.html': '1' } });
    const connection = await git.connect();
    const app = await git.app(connection, 'ann/site');
    const refused = await api('DELETE', `git/connections/${connection.id}`);
    expect(refused).toMatchObject({ status: 409, body: { error: { code: 'connection_in_use' } } });
    expect(refused.text).toContain(app.name);
    await api('DELETE', `apps/${app.id}`);
    expect((await api('DELETE', `git/connections/${connection.id}`)).status).toBe(204);
  });

  it('a key that is narrowed to a project cannot use a connection, which opens every repository of its token', async () => {
    const connection = await git.connect();
    const narrow = keyOf(git.bench.account, {
      policy: [{ effect: 'allow', actions: ['app:*'], resources: [`project:${git.bench.project}`] }],
    });
    const app = {
      name: randomUUID(),
      source_type: 'git',
      git_provider: 'gitea',
      git_connection_id: connection.id,
      repo_full_name: 'ann/site',
    };
    const path = `projects/${git.bench.project}/apps`;
    expect((await api('POST', path, app, narrow)).status).toBe(403);
    expect((await api('POST', path, app, git.bench.stranger)).status).toBe(404);
  });

  it('a repeated Idempotency-Key answers the same and asks for nothing twice', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const first = await api('POST', 'git/connections', body(), git.bench.key, headers);
    const second = await api('POST', 'git/connections', body(), git.bench.key, headers);
    expect([second.status, second.body]).toEqual([201, first.body]);
  });
});
