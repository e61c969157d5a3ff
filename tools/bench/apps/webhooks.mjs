import { call, untilLive } from '../src/deploy.mjs';
import { firstLine } from './events.mjs';

/** Pushes of one app follow each other at such a distance: those that come sooner share a build. */
const apartMs = 13_000;

/** Pushes to several repositories. @returns {Promise<number[]>} milliseconds from the delivery until a reader has the first line */
export async function webhooks(nebo, host, runs) {
  const { project_id: project } = nebo.credentials.accounts[0];
  const connection = { provider: 'gitea', base_url: host.url, token: host.token };
  const { id: connectionId } = await call(nebo, 'POST', '/git/connections', connection);
  const apps = [];
  for (let count = 0; count < 5; count += 1) {
    const name = `ann/site-${count}`;
    await host.createRepository(name);
    await host.push(name, { files: { 'index.html': 'first' } });
    const { id } = await call(nebo, 'POST', `/projects/${project}/apps`, {
      name: `pushed-${count}`,
      git_provider: 'gitea',
      git_connection_id: connectionId,
      repo_full_name: name,
    });
    while (host.repository(name).hooks.length === 0) await pause(20);
    apps.push({ id, name, pushedAt: -apartMs });
  }
  const took = [];
  for (let run = 0; run < runs; run += 1) {
    const app = apps[run % apps.length];
    await pause(app.pushedAt + apartMs - performance.now());
    const commit = await host.push(app.name, { files: { 'index.html': `run ${run}` } });
    app.pushedAt = performance.now();
    const { sentAt, status, answer } = host.deliveries.at(-1);
    if (status !== 202) throw new Error(`a delivery was answered ${status}: ${answer}`);
    const build = await buildOf(nebo, app.id, commit);
    await firstLine(nebo, `/apps/${app.id}/builds/${build}/logs`);
    took.push(performance.now() - sentAt);
    await untilLive(nebo, app.id, build);
  }
  return took;
}

async function buildOf(nebo, appId, commit) {
  for (;;) {
    const { data } = await call(nebo, 'GET', `/apps/${appId}/builds?limit=3`);
    const found = data.find((build) => build.commit_sha === commit);
    if (found) return found.id;
    await pause(10);
  }
}

const pause = (ms) => new Promise((done) => setTimeout(done, Math.max(0, ms)));
