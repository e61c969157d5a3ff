import { join } from 'node:path';
import type { BuildSpec } from '@nebo/contracts';
import { startServices, type TestProcess } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent } from '../../../test/fake-agent.js';
import { eventually, pause, StubTarget } from '../../../test/harness.js';
import { OAuthBench } from '../../../test/oauth-bench.js';
import { appsBuilder } from '../../apps-builder.module.js';

afterAll(async () => (await sharedPostgres()).stop());

describe('grants of OAuth apps that run out', () => {
  let oauth: OAuthBench;
  let other: TestProcess;
  const api: OAuthBench['git']['bench']['api'] = (...of) => oauth.git.bench.api(...of);
  const repositories = async (id: string) => (await api('GET', `git/connections/${id}/repositories`)).status;
  const renewals = () => oauth.host.oauth.asked.filter((type) => type === 'refresh_token').length;

  beforeAll(async () => {
    // GitLab takes the old token and what it is renewed by back in the moment of a renewal.
    oauth = await OAuthBench.start('gitlab');
    await oauth.host.createRepository('ann/site');
    await oauth.host.push('ann/site', { files: { 'index.html': '1' } });
    const { config } = oauth.git.bench.nebo.runtime;
    const { NEBO_HOME: home, ...env } = config.env as Record<string, string>;
    other = await startServices({
      databaseUrl: oauth.git.bench.databaseUrl,
      definitions: [appsBuilder],
      env: { ...env, NEBO_MASTER_KEY_FILE: join(home!, 'master.key') },
    });
    other.runtime.targets.set('identity-billing', oauth.git.bench.billing.target);
    other.runtime.targets.set('compute', new StubTarget(() => undefined));
  });
  afterAll(async () => {
    await other?.close();
    await oauth?.close();
  });

  it('renews before its end, once, however many ask at once in however many processes', async () => {
    const { id } = await oauth.connect();
    await oauth.age(id);
    const before = renewals();
    oauth.host.oauth.slowMs = 300;
    const path = `/v1/git/connections/${id}/repositories`;
    const asks = Array.from({ length: 8 }, (_, index) =>
      index % 2 === 0
        ? repositories(id)
        : other.request('apps-builder', { path, as: oauth.git.bench.key }).then(({ status }) => status),
    );
    expect(await Promise.all(asks)).toEqual(Array(8).fill(200));
    oauth.host.oauth.slowMs = 0;
    expect(renewals() - before).toBe(1);
    expect(await repositories(id)).toBe(200);
    expect(renewals() - before).toBe(1);
  });

  it('renews when the host does not take the token before its time, and asks again', async () => {
    const { id } = await oauth.connect();
    const before = renewals();
    oauth.host.oauth.expire();
    expect(await repositories(id)).toBe(200);
    expect(renewals() - before).toBe(1);
  });

  it('goes on with the present token while the host does not renew it, until its end', async () => {
    const { id } = await oauth.connect();
    await oauth.age(id);
    oauth.host.oauth.trouble = 503;
    expect(await repositories(id)).toBe(200);
    await oauth.git.bench.sql(
      "update git_connection set token_expires_at = now() - interval '1 second' where id = $1",
      [id],
    );
    expect(await repositories(id)).toBe(503);
    oauth.host.oauth.trouble = null;
    expect(await repositories(id)).toBe(200);
    expect((await api('GET', `git/connections/${id}`)).body.status).toBe('active');
  });

  it('keeps a new grant although the database is away when it comes', async () => {
    const { id } = await oauth.connect();
    await oauth.age(id);
    // Every write of a token fails until the trigger goes.
    await oauth.git.bench.sql(`create function away() returns trigger language plpgsql as $$
      begin if new.token_sealed <> old.token_sealed then raise exception 'away'; end if; return new; end $$`);
    await oauth.git.bench.sql(
      'create trigger away before update on git_connection for each row execute function away()',
    );
    const before = renewals();
    const asked = repositories(id);
    await eventually('renewed at the host', async () => renewals() > before);
    await oauth.git.bench.sql('drop trigger away on git_connection');
    expect(await asked).toBe(200);
    expect(renewals() - before).toBe(1);
    expect(await repositories(id)).toBe(200);
  });

  it('a process that died while it renewed holds nobody up for long', async () => {
    const { id } = await oauth.connect();
    await oauth.age(id);
    await oauth.git.bench.sql(
      "update git_connection set renewing = gen_random_uuid(), renewing_since = now() - interval '14 seconds' where id = $1",
      [id],
    );
    expect(await repositories(id)).toBe(200);
  }, 30_000);

  it('an answer that was lost at a host that takes the old grant back: 409, the reason, and a reconnect with the same id', async () => {
    const connection = await oauth.connect();
    const { id } = connection;
    const app = await oauth.git.app(connection, 'ann/site');
    await oauth.age(id);
    oauth.host.oauth.losesAnswers = 1;
    const first = await api('POST', `apps/${app.id}/deploy`);
    expect(first).toMatchObject({ status: 409, body: { error: { code: 'git_reconnect' } } });
    expect(first.body.error.message).toContain('reconnect it by POST /git/authorizations');
    const { status, status_reason } = (await api('GET', `git/connections/${id}`)).body;
    expect([status, status_reason]).toEqual(['error', expect.stringContaining('reconnect')]);
    expect((await oauth.connect()).id).toBe(id);
    expect((await api('GET', `git/connections/${id}`)).body).toMatchObject({
      status: 'active',
      status_reason: null,
    });
    expect((await api('POST', `apps/${app.id}/deploy`)).status).toBe(200);
  });

  it('a lost answer at a host that still takes the old grant is nothing: it is asked again', async () => {
    const { id } = await oauth.connect();
    await oauth.age(id);
    oauth.host.oauth.strict = false;
    oauth.host.oauth.losesAnswers = 1;
    // The present token is still good: the question is answered, the renewal is for the next one.
    expect([await repositories(id), await repositories(id)]).toEqual([200, 200]);
    oauth.host.oauth.strict = true;
    const { status } = (await api('GET', `git/connections/${id}`)).body;
    expect(status).toBe('active');
  });

  it('a grant that was taken back stops deploys with what to do; pushes say it in the app', async () => {
    const connection = await oauth.connect();
    const app = await oauth.git.app(connection, 'ann/site');
    oauth.host.oauth.revoke();
    const answer = await api('POST', `apps/${app.id}/deploy`);
    expect(answer).toMatchObject({ status: 409, body: { error: { code: 'git_reconnect' } } });
    expect((await api('GET', `git/connections/${connection.id}`)).body.status).toBe('error');
    await oauth.connect();
    expect((await api('POST', `apps/${app.id}/deploy`)).status).toBe(200);
  });

  it('what waits for its turn in a region is fetched with a token that is alive', async () => {
    const connection = await oauth.connect();
    const app = await oauth.git.app(connection, 'ann/site');
    await api('POST', `apps/${app.id}/deploy`);
    await oauth.age(connection.id);
    const agent = new FakeAgent(oauth.git.bench);
    const passwords = async () =>
      (
        (await agent.until('the build is wanted', ({ spec }) => (spec as BuildSpec).app_id === app.id))
          .spec as BuildSpec
      ).git!.password;
    const first = await passwords();
    expect(oauth.host.tokens.has(first!)).toBe(true);
    // A renewal while it waits: the agent hears of the new token by a new generation.
    await oauth.age(connection.id);
    expect(await repositories(connection.id)).toBe(200);
    await eventually('the new token', async () => (await passwords()) !== first);
    expect(oauth.host.tokens.has((await passwords())!)).toBe(true);
  });

  it('a host that does not answer holds up nothing else that a region has to do', async () => {
    const connection = await oauth.connect();
    const app = await oauth.git.app(connection, 'ann/site');
    await api('POST', `apps/${app.id}/deploy`);
    await oauth.age(connection.id);
    oauth.host.oauth.slowMs = 6_000;
    oauth.host.oauth.trouble = 503;
    const agent = new FakeAgent(oauth.git.bench);
    const poll = async () => {
      const begun = Date.now();
      const { build } = await oauth.git.bench.appWithBuild();
      await agent.until('the other build is wanted', ({ id }) => id === build.id);
      return Date.now() - begun;
    };
    expect(await poll()).toBeLessThan(4_000);
    // Then it says no, and is let alone for a while.
    await pause(5_000);
    expect(await poll()).toBeLessThan(1_000);
    Object.assign(oauth.host.oauth, { slowMs: 0, trouble: null });
    await api('DELETE', `apps/${app.id}`);
  }, 30_000);
});

describe('tokens of GitHub', () => {
  let oauth: OAuthBench;
  const api: OAuthBench['git']['bench']['api'] = (...of) => oauth.git.bench.api(...of);

  beforeAll(async () => {
    oauth = await OAuthBench.start('github');
    await oauth.host.createRepository('ann/site');
    await oauth.host.push('ann/site', { files: { 'index.html': '1' } });
  });
  afterAll(() => oauth?.close());

  it('live until they are taken back; errors that come with status 200 are errors', async () => {
    const { id } = await oauth.connect();
    expect((await api('GET', `git/connections/${id}/repositories`)).status).toBe(200);
    oauth.host.oauth.revoke();
    expect((await api('GET', `git/connections/${id}/repositories`)).status).toBe(409);
    expect((await api('GET', `git/connections/${id}`)).body.status).toBe('error');
    const { authorize_url } = (await oauth.begin()).body;
    const back = new URL(await oauth.agree(authorize_url));
    back.searchParams.set('code', 'code-none');
    expect((await oauth.git.back(back.href)).status).toBe(403);
  });

  it('an installation of the app opens the account’s repositories by tokens of an hour', async () => {
    const begun = (await oauth.begin({ installation: true })).body;
    const url = new URL(begun.authorize_url);
    expect(url.pathname).toBe('/github-apps/nebo/installations/new');
    // The host sends the person back with a code of theirs and the installation.
    const person = new URL(
      await oauth.agree((await oauth.begin()).body.authorize_url.replace(/code_challenge[^&]*&?/g, '')),
    );
    const back = `/?state=${url.searchParams.get('state')}&code=${person.searchParams.get('code')}&installation_id=`;
    const made = await oauth.git.back(`${back}42&setup_action=install`);
    expect(made.status).toBe(200);
    const { connection_id } = await oauth.look(begun.id);
    const connection = (await api('GET', `git/connections/${connection_id}`)).body;
    expect(connection).toMatchObject({ auth: 'installation', login: 'ann', status: 'active' });
    const list = await api('GET', `git/connections/${connection_id}/repositories`);
    expect(list.body).toMatchObject({ total: 1, data: [{ full_name: 'ann/site' }] });
    const app = await oauth.git.app(connection, 'ann/site', {
      git_connection_id: null,
      github_installation_id: connection_id,
    });
    oauth.host.oauth.expire();
    expect((await api('POST', `apps/${app.id}/deploy`)).status).toBe(200);
    oauth.host.oauth.installed!.installationId = '43';
    oauth.host.oauth.expire();
    expect((await api('POST', `apps/${app.id}/deploy`)).status).toBe(409);
    oauth.host.oauth.installed!.installationId = '42';
  });

  it('an installation that the person has nothing to do with is refused', async () => {
    const begun = (await oauth.begin({ installation: true })).body;
    const state = new URL(begun.authorize_url).searchParams.get('state');
    const person = new URL(
      await oauth.agree((await oauth.begin()).body.authorize_url.replace(/code_challenge[^&]*&?/g, '')),
    );
    const page = await oauth.git.back(
      `/?state=${state}&code=${person.searchParams.get('code')}&installation_id=4711`,
    );
    expect([page.status, page.text]).toEqual([403, expect.stringContaining('no such installation')]);
    const owner = (await oauth.begin({ installation: true })).body;
    const request = new URL(owner.authorize_url).searchParams.get('state');
    const asked = await oauth.git.back(`/?state=${request}&setup_action=request`);
    expect([asked.status, asked.text]).toEqual([403, expect.stringContaining('owner')]);
  });
});
