import type { V1GitConnection } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { GitBench } from '../../test/git-bench.js';
import { eventually } from '../../test/harness.js';
import { PushLifecycle } from './push.lifecycle.js';

type Due = PushLifecycle['due'];

afterAll(async () => (await sharedPostgres()).stop());

describe('pushes that come in between', () => {
  let git: GitBench;
  let connection: V1GitConnection;
  let lifecycle: PushLifecycle;
  let pushes = 0;

  beforeAll(async () => {
    git = await GitBench.start();
    lifecycle = git.bench.nebo.services.get('apps-builder')!.app.get(PushLifecycle);
    connection = await git.connect();
  });
  afterEach(() => {
    delete (lifecycle as { due?: Due }).due;
  });
  afterAll(() => git?.close());

  const push = (repo: string) => git.host.push(repo, { files: { 'index.html': `${(pushes += 1)}` } });
  const hooked = async (repo: string) => {
    await git.host.createRepository(repo);
    await push(repo);
    const { id } = await git.app(connection, repo);
    await eventually('a webhook', async () => git.host.repository(repo).hooks.length === 1);
    return id as string;
  };
  /** Puts itself between what a step has decided and its writing. */
  const between = (work: (outcome: Awaited<ReturnType<Due>>) => Promise<void>, before = () => {}) => {
    const due: Due = lifecycle.due.bind(lifecycle);
    lifecycle.due = async (app) => {
      before();
      const outcome = await due(app);
      await work(outcome);
      return outcome;
    };
  };
  const built = (app: string, sha: string) =>
    eventually(
      'its build',
      async () => {
        // No pause between two builds of pushes.
        await git.bench.sql('update app set push_built_at = null where id = $1', [app]);
        await git.bench.sql("update lifecycle set run_at = now() where kind = 'push' and ended_at is null");
        return (await git.builds(app))[0]?.commit_sha === sha;
      },
      5_000,
    );

  it('one that comes while the life of those before it ends is built all the same', async () => {
    const app = await hooked('ann/late');
    let sha: string | null = null;
    between(async ({ kind }) => {
      if (kind === 'end' && sha === null) {
        sha = '';
        sha = await push('ann/late');
      }
    });
    await push('ann/late');
    await eventually('the second push', async () => Boolean(sha));
    await built(app, sha!);
    expect((await git.deliveries(app))[0]).toMatchObject({ outcome: 'accepted', commit_sha: sha });
  });

  it('one that brings the branch back while the one before is given up is built all the same', async () => {
    const app = await hooked('ann/back');
    let sha: string | null = null;
    between(
      async () => {
        git.host.trouble = null;
        if (sha !== null) return;
        sha = '';
        sha = await push('ann/back');
      },
      () => {
        if (sha === null) git.host.trouble = 404;
      },
    );
    await push('ann/back');
    await eventually('the second push', async () => Boolean(sha));
    await built(app, sha!);
    const [second, first] = await git.deliveries(app);
    expect(second).toMatchObject({ outcome: 'accepted', commit_sha: sha });
    expect(first).toMatchObject({
      outcome: 'ignored',
      reason: 'the repository or its branch "main" is not there any more',
    });
    await eventually('nothing is wrong any more', async () => {
      const { body } = await git.bench.api('GET', `apps/${app}`);
      return body.source_error === null;
    });
  });
});

describe('pushes of a host without ids of deliveries, whose bodies are equal', () => {
  let git: GitBench;
  beforeAll(async () => {
    git = await GitBench.start({ dialect: 'gitflic' });
  });
  afterAll(() => git?.close());

  it('the second one within seconds is built too; one that brings nothing new is not', async () => {
    await git.host.createRepository('ann/site');
    await git.host.push('ann/site', { files: { 'index.html': '0' } });
    const connection = await git.connect();
    const { id: app } = await git.app(connection, 'ann/site');
    await eventually('a webhook', async () => git.host.repository('ann/site').hooks.length === 1);
    const newest = (sha: string) =>
      eventually(`${sha} is built`, async () => {
        await git.bench.sql('update app set push_built_at = null where id = $1', [app]);
        await git.bench.sql("update lifecycle set run_at = now() where kind = 'push' and ended_at is null");
        return (await git.builds(app))[0]?.commit_sha === sha;
      });
    const shas: string[] = [];
    for (const text of ['1', '2', '3']) {
      shas.push(await git.host.push('ann/site', { files: { 'index.html': text } }));
      await newest(shas.at(-1)!);
    }
    const { body, headers } = git.host.deliveries.at(-1)!;
    await git.deliver(connection.id, Buffer.from(body), headers);
    await eventually('nothing new came of it', async () => {
      await git.bench.sql("update lifecycle set run_at = now() where kind = 'push' and ended_at is null");
      return (await git.deliveries(app))[0]!.reason.endsWith('is the head of main, and is built already');
    });
    const builds = await git.builds(app);
    expect(builds.map(({ commit_sha }) => commit_sha)).toEqual([...shas].reverse());
    const lines = (await git.deliveries(app)).filter(({ outcome }) => outcome === 'accepted');
    expect(lines.map(({ build_id }) => build_id)).toEqual(builds.map(({ id }) => id));
  }, 40_000);
});
