import { createHmac, randomUUID } from 'node:crypto';
import type { V1GitConnection } from '@nebo/contracts';
import { type MadeDelivery, sharedPostgres } from '@nebo/test-kit';
import { GitBench } from '../../test/git-bench.js';
import { eventually, pause } from '../../test/harness.js';
import { Housekeeping } from '../shared/housekeeping.js';
import { judge } from './judge.js';

describe('deliveries of a git host', () => {
  let git: GitBench;
  let connection: V1GitConnection;
  const api: GitBench['bench']['api'] = (...of) => git.bench.api(...of);
  const secret = () => git.host.repository('ann/site').hooks[0]!.secret;
  const hooked = (repo: string) =>
    eventually('a webhook', async () => git.host.repository(repo).hooks.length === 1);
  const latest = async (appId: string) => (await git.deliveries(appId))[0]!;
  const lastSent = () => git.host.deliveries.at(-1)!;
  const send = (sent: Pick<MadeDelivery, 'headers' | 'body'>, more: Record<string, string> = {}) =>
    git.deliver(connection.id, Buffer.from(sent.body), { ...sent.headers, ...more });

  beforeAll(async () => {
    git = await GitBench.start();
    await git.host.createRepository('ann/site');
    await git.host.push('ann/site', { files: { 'index.html': '0', 'apps/web/index.html': '0' } });
    connection = await git.connect();
  });
  afterAll(async () => {
    await git?.close();
    await (await sharedPostgres()).stop();
  });

  it('a push to the branch is answered 202 and becomes a build of its commit', async () => {
    const app = await git.app(connection, 'ann/site');
    await hooked('ann/site');
    const sha = await git.host.push('ann/site', { files: { 'index.html': '1' }, message: 'Second' });
    expect([lastSent().status, JSON.parse(lastSent().answer)]).toEqual([
      202,
      { outcome: 'accepted', reason: 'push to main' },
    ]);
    const [build] = await eventually('a build', async () => {
      const builds = await git.builds(app.id);
      return builds.length > 0 && builds;
    });
    expect(build).toMatchObject({
      commit_sha: sha,
      commit_message: 'Second',
      status: 'queued',
      branch: 'main',
    });
    const line = await eventually('the link', async () => {
      const delivery = await latest(app.id);
      return delivery.build_id !== null && delivery;
    });
    expect(line).toEqual({
      id: expect.any(String),
      connection_id: connection.id,
      event: 'push',
      branch: 'main',
      commit_sha: sha,
      outcome: 'accepted',
      reason: 'push to main',
      build_id: build.id,
      repeats: 0,
      received_at: expect.any(String),
    });
    // The same bytes again, and the same message under another id: no second build.
    const first = lastSent();
    expect(await send(first)).toMatchObject({ status: 200, body: { outcome: 'ignored' } });
    expect(await send(first, { 'x-gitea-delivery': randomUUID() })).toMatchObject({ status: 200 });
    expect(await latest(app.id)).toMatchObject({
      outcome: 'ignored',
      reason: `${sha.slice(0, 12)} of main is built already`,
      build_id: build.id,
    });
    expect((await git.deliveries(app.id)).map(({ repeats }) => repeats)).toEqual([0, 1]);
    // The next look at the head would wait for the gap between two builds of pushes.
    const longAgo = () =>
      git.bench.sql("update app set push_built_at = now() - interval '1 minute' where id = $1", [app.id]);
    await longAgo();
    // An older push under a new id: the head of the branch is what counts, and that one is built.
    const next = await git.host.push('ann/site', { files: { 'index.html': 'next' } });
    await eventually('the next build', async () => (await git.builds(app.id))[0].commit_sha === next, 40_000);
    await longAgo();
    expect(await send(first, { 'x-gitea-delivery': randomUUID() })).toMatchObject({ status: 202 });
    await eventually('the verdict', async () => (await latest(app.id)).outcome === 'ignored', 40_000);
    expect((await latest(app.id)).reason).toBe(
      `${next.slice(0, 12)} is the head of main, and is built already`,
    );
    expect(await git.builds(app.id)).toHaveLength(2);
    await api('DELETE', `apps/${app.id}`);
  }, 60_000);

  it('what is not to be built is ignored with the reason', async () => {
    const app = await git.app(connection, 'ann/site', { root_directory: './apps/web/' });
    await hooked('ann/site');
    const reason = async () => {
      const { outcome, reason: why } = await latest(app.id);
      return `${outcome}: ${why}`;
    };
    await git.host.push('ann/site', { branch: 'other', files: { x: '1' } });
    expect(await reason()).toBe('ignored: branch other: this app is built from main');
    await git.host.push('ann/site', { files: { 'docs/a.md': '1' } });
    expect(await reason()).toMatch(/^accepted/); // Brought the commit of the other branch along: `x` at the top.
    await git.host.push('ann/site', { files: { 'docs/a.md': '2' } });
    expect(await reason()).toBe('ignored: nothing of apps/web was changed');
    await git.host.push('ann/site', { files: { 'apps/web/index.html': '2' }, message: 'Text [skip ci]' });
    expect(await reason()).toBe('ignored: the message of the last commit says [skip ci]');
    await git.host.pushRef('ann/site', 'HEAD:refs/tags/v1');
    expect(await reason()).toBe('ignored: tag v1: only branches are built');
    await git.host.ping('ann/site');
    expect(await reason()).toBe('ignored: the webhook works');
    await git.bench.sql('update app set auto_deploy = false where id = $1', [app.id]);
    await git.host.push('ann/site', { files: { 'apps/web/index.html': '3' } });
    expect(await reason()).toBe('ignored: automatic deploys are off for this app');
    await api('DELETE', `apps/${app.id}`);
  });

  it('401 without a signature, 403 with a wrong one: logged, believed in nothing, one line however many come', async () => {
    const app = await git.app(connection, 'ann/site');
    await hooked('ann/site');
    await git.host.push('ann/site', { files: { 'index.html': '4' } });
    const sent = lastSent();
    const builds = async () => (await git.builds(app.id)).length;
    await eventually('the build', async () => (await builds()) === 1);
    const { 'x-gitea-signature': signature, ...unsigned } = sent.headers;
    const forged = sent.body.replaceAll('ann/site', 'eve/evil');
    const answers = [
      await send({ body: sent.body, headers: unsigned }),
      await send({ body: sent.body, headers: { ...unsigned, 'x-gitea-signature': '' } }),
      await send({ body: sent.body, headers: { ...unsigned, 'x-gitea-signature': 'f'.repeat(64) } }),
      await send({ body: forged, headers: sent.headers }),
      await send({ body: `${sent.body} `, headers: sent.headers }),
      // The header of another kind of host, rightly signed: the connection says which counts.
      await send({ body: sent.body, headers: { ...unsigned, 'x-hub-signature-256': `sha256=${signature}` } }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([401, 401, 403, 403, 403, 401]);
    expect(answers.map(({ body }) => body.error.code).slice(1, 3)).toEqual([
      'signature_missing',
      'signature_invalid',
    ]);
    const forgeries = await Promise.all(
      Array.from({ length: 60 }, (_, count) =>
        send({
          body: sent.body,
          headers: {
            ...unsigned,
            'x-gitea-delivery': randomUUID(),
            'x-gitea-signature': createHmac('sha256', `${count}`).update(sent.body).digest('hex'),
          },
        }),
      ),
    );
    expect(new Set(forgeries.map(({ status }) => status))).not.toContain(202);
    const refused = (await git.deliveries(app.id)).filter(({ outcome }) => outcome === 'refused');
    // A minute may have passed in between: two lines at most for each reason.
    expect(refused.length).toBeGreaterThanOrEqual(2);
    expect(refused.length).toBeLessThanOrEqual(4);
    expect(refused.reduce((sum, { repeats }) => sum + repeats + 1, 0)).toBeGreaterThanOrEqual(20);
    for (const line of refused)
      expect(line).toMatchObject({ event: 'unknown', branch: null, commit_sha: null, build_id: null });
    expect(JSON.stringify(await git.deliveries(app.id))).not.toContain('evil');
    expect(await builds()).toBe(1);
    await api('DELETE', `apps/${app.id}`);
  });

  it('404 for an unknown connection, 413 above the limit, 400 for what cannot be read; a form is read as well', async () => {
    const app = await git.app(connection, 'ann/site');
    await hooked('ann/site');
    const sign = (body: string) => ({
      'x-gitea-event': 'push',
      'x-gitea-delivery': randomUUID(),
      'x-gitea-signature': createHmac('sha256', secret()).update(body).digest('hex'),
    });
    for (const id of [randomUUID(), 'x']) expect((await git.deliver(id, Buffer.from('{}'))).status).toBe(404);
    expect((await git.deliver(connection.id, Buffer.alloc(9 * 1024 * 1024, 32))).status).toBe(413);
    for (const body of ['', 'not json', '[]', '{}', '{"ref":"refs/heads/main"}', `${'['.repeat(200)}`]) {
      const { status } = await send({ body, headers: sign(body) });
      expect([body.slice(0, 20), status]).toEqual([body.slice(0, 20), 400]);
    }
    const content = {
      ref: 'refs/heads/main',
      before: 'a'.repeat(40),
      after: 'b'.repeat(40),
      repository: { full_name: 'Ann/SITE' },
    };
    const form = new URLSearchParams({ payload: JSON.stringify(content) }).toString();
    const type = { 'content-type': 'application/x-www-form-urlencoded; charset=utf-8' };
    expect((await send({ body: form, headers: { ...sign(form), ...type } })).status).toBe(202);
    const foreign = JSON.stringify({ ...content, repository: { full_name: 'bob/other' } });
    expect(await send({ body: foreign, headers: sign(foreign) })).toMatchObject({
      status: 200,
      body: { outcome: 'ignored', reason: 'no app is built from bob/other' },
    });
    const other = JSON.stringify({ action: 'opened', repository: { full_name: 'ann/site' } });
    const issue = { ...sign(other), 'x-gitea-event': 'issues' };
    expect((await send({ body: other, headers: issue })).body).toEqual({
      outcome: 'ignored',
      reason: 'issues: only pushes are built',
    });
    await api('DELETE', `apps/${app.id}`);
  });

  it('200 pushes in a burst make at most 3 builds, and the last commit wins', async () => {
    const app = await git.app(connection, 'ann/site');
    await hooked('ann/site');
    await git.host.push('ann/site', { files: { 'index.html': '5' } });
    const sent = lastSent();
    const last = await git.host.push('ann/site', { files: { 'index.html': '6' } });
    for (let round = 0; round < 20; round += 1) {
      await Promise.all(
        Array.from({ length: 10 }, async () => {
          const body = sent.body.replace('"total_commits":1', `"total_commits":1,"n":"${randomUUID()}"`);
          const headers = {
            ...sent.headers,
            'x-gitea-delivery': randomUUID(),
            'x-gitea-signature': createHmac('sha256', secret()).update(body).digest('hex'),
          };
          expect((await send({ body, headers })).status).toBe(202);
        }),
      );
      await pause(50);
    }
    await eventually(
      'quiet',
      async () => {
        const waiting = await git.bench.sql('select 1 from app where id = $1 and push_at is not null', [
          app.id,
        ]);
        return waiting.length === 0;
      },
      45_000,
    );
    const builds = await git.builds(app.id);
    expect(builds.length).toBeLessThanOrEqual(3);
    expect(builds[0].commit_sha).toBe(last);
    // No region has begun: what was overtaken is called off.
    for (const older of builds.slice(1))
      expect(older).toMatchObject({ status: 'cancelled', error: 'overtaken by a newer push' });
    await api('DELETE', `apps/${app.id}`);
  }, 90_000);

  it('a push that cannot be followed says why, and is followed once the token is renewed', async () => {
    const app = await git.app(connection, 'ann/site');
    await hooked('ann/site');
    git.host.delivers = false;
    const sha = await git.host.push('ann/site', { files: { 'index.html': '7' } });
    git.host.delivers = true;
    const body = JSON.stringify({
      ref: 'refs/heads/main',
      before: 'a'.repeat(40),
      after: sha,
      repository: { full_name: 'ann/site' },
    });
    git.host.tokens.clear();
    const headers = {
      'x-gitea-event': 'push',
      'x-gitea-delivery': randomUUID(),
      'x-gitea-signature': createHmac('sha256', secret()).update(body).digest('hex'),
    };
    expect((await send({ body, headers })).status).toBe(202);
    const error = async () => (await api('GET', `apps/${app.id}`)).body.source_error;
    expect(await eventually('the error', error)).toContain('reconnect');
    git.host.tokens.add('token-of-ann');
    await git.connect();
    const [build] = await eventually('the build', async () => {
      const builds = await git.builds(app.id);
      return builds.length > 0 && builds;
    });
    expect(build.commit_sha).toBe(sha);
    expect(await error()).toBeNull();
    await api('DELETE', `apps/${app.id}`);
  });

  it('deliveries are read page by page, by their account only', async () => {
    const app = await git.app(connection, 'ann/site');
    await hooked('ann/site');
    for (const text of ['8', '9']) await git.host.push('ann/site', { files: { 'index.html': text } });
    const path = `projects/${git.bench.project}/apps/${app.id}/deliveries`;
    const { status, body: page } = await api('GET', `${path}?limit=1`);
    expect([status, page.count, page.data[0].outcome]).toEqual([200, 1, 'accepted']);
    expect(page.total).toBeGreaterThanOrEqual(2);
    expect((await api('GET', path, undefined, git.bench.stranger)).status).toBe(404);
    expect((await api('GET', `apps/${randomUUID()}/deliveries`)).status).toBe(404);
    expect((await api('GET', `${path}?limit=0`)).status).toBe(422);
  });

  it('housekeeping forgets lines after a month and connections a week after they were deleted', async () => {
    const app = await git.app(connection, 'ann/site');
    await hooked('ann/site');
    await git.host.push('ann/site', { files: { 'index.html': '10' } });
    await git.host.push('ann/site', { files: { 'index.html': '11' } });
    await git.bench.sql(
      "update delivery set received_at = now() - interval '31 days' where app_id = $1 and seq = (select min(seq) from delivery where app_id = $1)",
      [app.id],
    );
    const other = await git.bench.api(
      'POST',
      'git/connections',
      {
        provider: 'gitea',
        base_url: git.host.url,
        token: git.host.token,
      },
      git.bench.stranger,
    );
    await api('DELETE', `git/connections/${other.body.id}`, undefined, git.bench.stranger);
    const rows = () => git.bench.sql('select 1 from git_connection where id = $1', [other.body.id]);
    const housekeeping = git.bench.nebo.services.get('apps-builder')!.app.get(Housekeeping);
    await housekeeping.run();
    const left = (await git.deliveries(app.id)).filter(({ outcome }) => outcome === 'accepted');
    expect([left.length, (await rows()).length]).toEqual([1, 1]);
    await git.bench.sql("update git_connection set deleted_at = now() - interval '8 days' where id = $1", [
      other.body.id,
    ]);
    await housekeeping.run();
    expect(await rows()).toEqual([]);
    await api('DELETE', `apps/${app.id}`);
  });
});

describe('what a push leads to', () => {
  const push = {
    kind: 'push',
    repo_full_name: 'a/b',
    branch: 'main',
    tag: null,
    deleted: false,
    commit: null,
    message: null,
    author: null,
    files: null,
  } as const;
  const app = { branch: 'main', auto_deploy: true, root_directory: null };
  const outcome = (more: object, wants: object = {}) =>
    judge({ ...push, ...more }, { ...app, ...wants }).outcome;

  it('takes pushes whose files are unknown, and those that touch the root directory or what lies above it', () => {
    const wants = { root_directory: '/apps/web/' };
    expect(outcome({}, wants)).toBe('accepted');
    for (const path of ['apps/web/a', 'apps/web', 'package-lock.json', 'apps/settings.json'])
      expect([path, outcome({ files: [path] }, wants)]).toEqual([path, 'accepted']);
    for (const path of ['apps/webshop/a', 'docs/a', 'apps/api/web/a', 'libs/x/package.json'])
      expect([path, outcome({ files: [path] }, wants)]).toEqual([path, 'ignored']);
    for (const root_directory of ['', '.', './', '/'])
      expect(outcome({ files: ['docs/a'] }, { root_directory })).toBe('accepted');
  });

  it('takes neither deletions, tags, other branches nor what says to be skipped', () => {
    expect(outcome({ deleted: true })).toBe('ignored');
    expect(outcome({ branch: null, tag: 'v1' })).toBe('ignored');
    expect(outcome({ branch: 'Main' })).toBe('ignored');
    for (const message of ['x [skip ci]', '[CI SKIP] x', 'x\n\n[skip cd]'])
      expect(outcome({ message })).toBe('ignored');
    expect(outcome({ message: 'skip ci' })).toBe('accepted');
  });
});
