import { randomUUID } from 'node:crypto';
import type { BuildSpec, V1GitConnection } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { GitBench } from '../../test/git-bench.js';
import { archive, eventually } from '../../test/harness.js';
import { commitStateOf } from './commit-status.lifecycle.js';

describe('apps from git repositories', () => {
  let git: GitBench;
  let agent: FakeAgent;
  let edge: FakeEdge;
  let connection: V1GitConnection;
  let head: string;
  const api: GitBench['bench']['api'] = (...of) => git.bench.api(...of);
  const create = (more: Record<string, unknown>) =>
    api('POST', `projects/${git.bench.project}/apps`, {
      name: `app ${randomUUID()}`,
      git_provider: 'gitea',
      git_connection_id: connection.id,
      repo_full_name: 'ann/site',
      ...more,
    });
  const specOf = async (buildId: string) =>
    (await agent.until('the build is wanted', ({ id }) => id === buildId)).spec as BuildSpec;
  const words = (sha: string, app: { name: string }) =>
    git.host
      .statuses('ann/site', sha)
      .filter(({ context }) => context === `nebo/${app.name}`)
      .map(({ state }) => state);

  beforeAll(async () => {
    git = await GitBench.start();
    agent = new FakeAgent(git.bench);
    edge = new FakeEdge(git.bench);
    edge.run();
    await git.host.createRepository('ann/site');
    await git.host.createRepository('ann/empty');
    head = await git.host.push('ann/site', { files: { 'index.html': '1' }, message: 'First' });
    connection = await git.connect();
  });
  afterAll(async () => {
    await edge?.stop();
    await git?.close();
    await (await sharedPostgres()).stop();
  });

  it('201 for a repository that the connection reaches; its webhook is made, and taken away with the last app', async () => {
    const { status, body: app } = await create({});
    expect([status, app]).toMatchObject([
      201,
      {
        source_type: 'git',
        git_provider: 'gitea',
        repo_full_name: 'ann/site',
        branch: 'main',
        status: 'inactive',
      },
    ]);
    const { hooks } = git.host.repository('ann/site');
    await eventually('a webhook', async () => hooks.length === 1);
    expect(hooks[0]!.url).toBe(`${git.publicUrl}/hooks/git/${connection.id}`);
    expect(hooks[0]!.secret).toMatch(/^[0-9a-f]{64}$/);
    // A second app shares it; the provider's older name of the connection's field is as good.
    const second = await create({
      git_connection_id: null,
      gitlab_connection_id: connection.id,
      repo_full_name: 'ANN/Site',
    });
    expect(second.status).toBe(201);
    await api('DELETE', `apps/${app.id}`);
    await git.bench.sql("update lifecycle set run_at = now(), wakes = wakes + 1 where kind = 'git_hook'");
    expect(hooks).toHaveLength(1);
    await api('DELETE', `apps/${second.body.id}`);
    await eventually('no webhook', async () => hooks.length === 0);
    await eventually('no row', async () => (await git.bench.sql('select 1 from git_hook')).length === 0);
    expect((await create({})).status).toBe(201);
    await eventually('a webhook again', async () => hooks.length === 1);
  });

  it('422 for a repository or branch that is not there, 404 for a connection, and what a host cannot be', async () => {
    const loc = async (more: Record<string, unknown>) => {
      const answer = await create(more);
      return [answer.status, answer.body.detail?.[0].loc[1] ?? answer.body.error.message];
    };
    expect(await loc({ repo_full_name: 'ann/absent' })).toEqual([422, 'repo_full_name']);
    expect(await loc({ branch: 'absent' })).toEqual([422, 'branch']);
    expect(await loc({ repo_full_name: 'ann/empty' })).toEqual([422, 'branch']);
    for (const name of [
      '',
      'ann',
      '/ann/site',
      'ann/../site',
      'ann/site.git',
      'ann/si te',
      'https://h/ann/site',
    ])
      expect(await loc({ repo_full_name: name })).toEqual([422, 'repo_full_name']);
    expect(await loc({ git_connection_id: randomUUID() })).toEqual([404, 'git_connection_id: not found']);
    const other = { git_connection_id: null, github_installation_id: 'x' };
    expect(await loc(other)).toEqual([404, 'github_installation_id: not found']);
    expect(await loc({ git_connection_id: null })).toEqual([422, 'git_connection_id']);
    expect(await loc({ git_provider: 'gitlab' })).toEqual([422, 'git_provider']);
  });

  it('an app without a repository can be made and says so when it is to be built', async () => {
    const app = await git.bench.app({ source_type: 'git' });
    const answer = await api('POST', `apps/${app.id}/deploy`);
    expect(answer).toMatchObject({ status: 409, body: { error: { code: 'no_source' } } });
    expect((await git.bench.upload(`apps/${app.id}/deployments`, archive())).status).toBe(422);
  });

  it('200 deploy builds the head of the branch, or the commit that is named; the host hears of it until it is live', async () => {
    const app = (await create({ name: 'Status' })).body;
    const { status, body: started } = await api('POST', `apps/${app.id}/deploy`);
    expect([status, started.status]).toEqual([200, 'queued']);
    const build = (await git.builds(app.id))[0];
    expect(build).toMatchObject({
      id: started.id,
      commit_sha: head,
      commit_message: 'First',
      commit_author: 'Ann Author',
      branch: 'main',
      source_archive_sha256: null,
    });
    const spec = await specOf(build.id);
    expect([spec.source, spec.git]).toEqual([
      null,
      {
        clone_url: `${git.host.url}/ann/site.git`,
        commit: head,
        branch: 'main',
        username: 'ann',
        password: git.host.token,
      },
    ]);
    await eventually('pending', async () => words(head, app).join() === 'pending');
    const item = await agent.until('wanted', ({ id }) => id === build.id);
    const source = await agent.put(archive({ 'index.html': '1' }));
    const artifact = await agent.put(archive({ 'index.html': 'built' }));
    await agent.observe(item, 'building');
    await agent.observe(item, 'success', {
      facts: {
        artifact,
        artifact_kind: 'static',
        start_command: null,
        stack: 'static',
        duration_ms: 5,
        source,
      },
    });
    await eventually('live', async () => (await git.builds(app.id))[0].deploy_state === 'live');
    await eventually('success', async () => words(head, app).join() === 'pending,success');
    const [told] = git.host.statuses('ann/site', head).slice(-1);
    expect(told!.url).toBe(`${git.publicUrl}/a/${git.bench.account}/apps/${app.id}/deploys/${build.id}`);

    // A rebuild has the same bytes and needs no git host.
    const again = (await api('POST', `apps/${app.id}/builds/${build.id}/rebuild`)).body;
    expect((await specOf(again.id)).source).toEqual(source);
    expect((await specOf(again.id)).git).toBeUndefined();
    expect((await git.builds(app.id))[0]).toMatchObject({
      commit_sha: head,
      source_archive_sha256: source.sha256,
    });

    const older = await api('POST', `apps/${app.id}/deploy`, { commit_sha: head });
    expect(older.status).toBe(200);
    for (const sha of ['main', 'f'.repeat(40)])
      expect((await api('POST', `apps/${app.id}/deploy`, { commit_sha: sha })).body.detail[0].loc).toEqual([
        'body',
        'commit_sha',
      ]);
  });

  it('a build that fails keeps what it fetched, and the host hears of the failure', async () => {
    const app = (await create({})).body;
    const { id } = (await api('POST', `apps/${app.id}/deploy`)).body;
    const item = await agent.until('wanted', (wanted) => wanted.id === id);
    const source = await agent.put(archive({ x: randomUUID() }));
    await agent.observe(item, 'building');
    await agent.observe(item, 'error', { reason: 'build: "make" exited with code 2.', facts: { source } });
    await eventually('failure', async () => words(head, app).join() === 'pending,failure');
    expect(git.host.statuses('ann/site', head).at(-1)!.description).toContain('exited with code 2');
    expect((await git.builds(app.id))[0].source_archive_sha256).toBe(source.sha256);
    // One that never got so far is built from the commit again.
    const second = (await api('POST', `apps/${app.id}/deploy`)).body;
    const other = await agent.until('wanted', (wanted) => wanted.id === second.id);
    await agent.observe(other, 'error', {
      reason: 'fetch: no',
      facts: { source: { sha256: 'x', bytes: 1 } },
    });
    await eventually('error', async () => (await git.builds(app.id))[0].status === 'error');
    const third = (await api('POST', `apps/${app.id}/builds/${second.id}/rebuild`)).body;
    expect((await specOf(third.id)).git).toMatchObject({ commit: head });
  });

  it('409 git_reconnect once the token is spent; with a new one it goes on, webhook included', async () => {
    const app = (await create({})).body;
    git.host.tokens.clear();
    const answer = await api('POST', `apps/${app.id}/deploy`);
    expect(answer).toMatchObject({ status: 409, body: { error: { code: 'git_reconnect' } } });
    expect(answer.body.error.message).toContain('reconnect it by POST /git/connections');
    expect((await create({})).status).toBe(409);
    git.host.tokens.add('token-new');
    await git.connect({ token: 'token-new' });
    expect((await api('POST', `apps/${app.id}/deploy`)).status).toBe(200);
    git.host.tokens.add('token-of-ann');
    await git.connect();
  });

  it('503 while the host is away; nothing is built', async () => {
    const app = (await create({})).body;
    git.host.trouble = 500;
    expect((await api('POST', `apps/${app.id}/deploy`)).status).toBe(503);
    git.host.trouble = null;
    expect(await git.builds(app.id)).toEqual([]);
  });

  it('a token without the right to webhooks: the app says so, and says nothing once it has it', async () => {
    await git.host.createRepository('ann/other');
    await git.host.push('ann/other', { files: { a: '1' } });
    git.host.forbidden.add('hooks').add('statuses');
    const app = (await create({ repo_full_name: 'ann/other' })).body;
    const error = async () => (await api('GET', `apps/${app.id}`)).body.source_error;
    expect(await eventually('the error', error)).toMatch(/^pushes are not heard: .*lacks a right/);
    expect((await api('POST', `apps/${app.id}/deploy`)).status).toBe(200);
    git.host.forbidden.clear();
    await git.connect();
    await eventually('no error', async () => (await error()) === null);
    await eventually('a webhook', async () => git.host.repository('ann/other').hooks.length === 1);
  });

  it('a repeat with the same Idempotency-Key is answered as the first, whatever the host or the balance say by now', async () => {
    const [making, deploying, connecting] = [randomUUID(), randomUUID(), randomUUID()].map((key) => ({
      'idempotency-key': key,
    }));
    const body = {
      ...{ name: `app ${randomUUID()}`, git_provider: 'gitea', git_connection_id: connection.id },
      ...{ repo_full_name: 'ann/site', replica_count: 1 },
    };
    const opening = { provider: 'gitea', base_url: git.host.url, token: git.host.token };
    const ask = (path: string, content: object, headers: Record<string, string>) =>
      api('POST', path, content, git.bench.key, headers);
    const all = async () => {
      const made = await ask(`projects/${git.bench.project}/apps`, body, making!);
      return [
        made,
        await ask(`apps/${made.body.id}/deploy`, {}, deploying!),
        await ask('git/connections', opening, connecting!),
      ].map((answer) => ({ status: answer.status, body: answer.body }));
    };
    const first = await all();
    expect(first.map(({ status }) => status)).toEqual([201, 200, 201]);
    const { available } = git.bench.billing;
    git.host.trouble = 503;
    git.bench.billing.available = 0n;
    const again = await all();
    git.host.trouble = null;
    git.bench.billing.available = available;
    expect(again).toEqual(first);
    expect((await git.builds(first[0]!.body.id)).length).toBe(1);
    await api('DELETE', `apps/${first[0]!.body.id}`);
  });
});

it.each([
  ['queued', null, 'pending'],
  ['building', null, 'pending'],
  ['success', 'rolling', 'pending'],
  ['success', 'unverified', 'pending'],
  ['success', 'live', 'success'],
  ['success', 'never_booted', 'failure'],
  ['success', 'failing', 'failure'],
  ['error', 'build_failed', 'failure'],
  ['cancelled', null, 'failure'],
])('status %s and deploy state %s are %s to the git host', (status, deploy_state, state) => {
  expect(commitStateOf({ status, deploy_state, error: null, boot_error: null }).state).toBe(state);
});
