import { type GitDialect, sharedPostgres } from '@nebo/test-kit';
import { GitBench } from '../../test/git-bench.js';
import { eventually } from '../../test/harness.js';

afterAll(async () => (await sharedPostgres()).stop());

/** Every kind that can be self-hosted, from the connection to the build of a push; GitVerse has its suite of the API. */
describe.each<GitDialect>(['github', 'gitlab', 'gitea', 'gitflic'])('%s', (dialect) => {
  let git: GitBench;

  beforeAll(async () => {
    git = await GitBench.start({ dialect });
    await git.host.createRepository('ann/site');
    await git.host.push('ann/site', { files: { 'index.html': '1' } });
  });
  afterAll(() => git?.close());

  it('connect, app, webhook, push, build, commit status; tags and deletions build nothing', async () => {
    const connection = await git.connect();
    expect(connection).toMatchObject({ provider: dialect, login: 'ann', status: 'active' });
    const app = await git.app(connection, 'ann/site');
    await eventually('a webhook', async () => git.host.repository('ann/site').hooks.length === 1);
    const sha = await git.host.push('ann/site', { files: { 'index.html': '2' }, message: 'Two' });
    const [build] = await eventually('a build', async () => {
      const builds = await git.builds(app.id);
      return builds.length > 0 && builds;
    });
    expect(build).toMatchObject({
      commit_sha: sha,
      commit_author: 'Ann Author',
      branch: 'main',
      status: 'queued',
    });
    expect(build.commit_message).toBe('Two');
    if (dialect !== 'gitflic')
      await eventually('a status', async () => git.host.statuses('ann/site', sha).length === 1);
    await git.host.pushRef('ann/site', 'HEAD:refs/tags/v1');
    await git.host.push('ann/site', { branch: 'side', files: { x: '1' } });
    await git.host.pushRef('ann/site', ':refs/heads/side');
    const log = await git.deliveries(app.id);
    const ignored = log.slice(0, -1);
    expect(ignored.length).toBeGreaterThanOrEqual(2);
    expect(new Set(ignored.map(({ outcome }) => outcome))).toEqual(new Set(['ignored']));
    expect(log.at(-1)).toMatchObject({ outcome: 'accepted', build_id: build.id, commit_sha: sha });
    // Some hosts say a message with the push, of others it is read with the commit.
    await git.host.push('ann/site', { files: { 'index.html': '3' }, message: 'Three [skip ci]' });
    await git.bench.sql('update app set push_built_at = null where id = $1', [app.id]);
    await git.bench.sql("update lifecycle set run_at = now() where kind = 'push' and ended_at is null");
    await eventually('it is skipped', async () => {
      const [{ outcome, reason } = { outcome: '', reason: '' }] = await git.deliveries(app.id);
      return outcome === 'ignored' && reason === 'the message of the last commit says [skip ci]';
    });
    expect(await git.builds(app.id)).toHaveLength(1);
    expect((await git.bench.api('GET', `apps/${app.id}`)).body.source_error).toBeNull();
  }, 40_000);
});
