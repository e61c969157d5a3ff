import { randomUUID } from 'node:crypto';
import { secured, securedTables, viewOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent } from '../../test/fake-agent.js';
import { Bench, eventually } from '../../test/harness.js';
import pg from 'pg';

const tenantTables = [
  'acme_challenge',
  'app',
  'app_domain',
  'app_port',
  'build',
  'build_log_line',
  'certificate',
  'delivery',
  'env_var',
  'git_connection',
  'git_hook',
  'job',
  'job_run',
  'replica',
  'revision',
  'route',
  'runtime_log_line',
  'span',
  'usage_hour',
  'usage_life',
  'usage_part',
];

describe('row-level security, the second belt', () => {
  let bench: Bench;
  let role: pg.Client;

  beforeAll(async () => {
    bench = await Bench.start();
    role = new pg.Client({ connectionString: bench.roleUrl });
    await role.connect();
    // One row of everything.
    const agent = new FakeAgent(bench);
    const { app, build } = await bench.appWithBuild({ replica_count: 1 });
    await bench.api('POST', `apps/${app.id}/env`, { name: 'A', value: '1' });
    await agent.build(build.id, 'server');
    const [replica] = await agent.replicas(build.id, 1);
    await agent.call('POST', `log/${replica!.id}`, {
      lines: [{ seq: 0, at: new Date().toISOString(), line: 'x' }],
    });
    await bench.sql(
      `insert into span (id, account_id, app_id, replica_count, vcpu, memory_mb, started_at, ended_at) values ($1, $2, $3, 1, 1, 512, now(), now())`,
      [randomUUID(), bench.account, app.id],
    );
    const connection = randomUUID();
    await bench.sql(
      `insert into git_connection (id, account_id, provider, login, name, token_sealed, hook_secret_sealed)
       values ($1, $2, 'github', 'ann', 'ann', '', '')`,
      [connection, bench.account],
    );
    await bench.sql(
      `insert into git_hook (id, account_id, connection_id, repo_full_name, repo_key) values ($1, $2, $3, 'a/b', 'a/b')`,
      [randomUUID(), bench.account, connection],
    );
    await bench.sql(
      `insert into delivery (id, account_id, connection_id, app_id, dedupe, event, outcome, reason)
       values ($1, $2, $3, $4, 'x', 'push', 'ignored', 'x')`,
      [randomUUID(), bench.account, connection, app.id],
    );
    const domain = randomUUID();
    await bench.sql(
      `insert into app_domain (id, account_id, app_id, host, status) values ($1, $2, $3, 'a.example.com', 'pending')`,
      [domain, bench.account, app.id],
    );
    const certificate = randomUUID();
    await bench.sql(
      `insert into certificate (id, account_id, domain_id, primary_domain, domains) values ($1, $2, $3, 'a.example.com', '{a.example.com}')`,
      [certificate, bench.account, domain],
    );
    await bench.sql(
      `insert into acme_challenge (token, account_id, certificate_id, host, answer) values ('t', $1, $2, 'a.example.com', 'x')`,
      [bench.account, certificate],
    );
    await bench.sql(
      `insert into app_port (id, account_id, app_id, project_id, region_id, vpc_id, replica_id)
       select $1, account_id, id, project_id, region_id, $1, $1 from app where id = $2`,
      [randomUUID(), app.id],
    );
    const job = randomUUID();
    await bench.sql(
      `insert into job (id, account_id, app_id, name, command, timeout_seconds, enabled) values ($1, $2, $3, 'j', 'true', 10, true)`,
      [job, bench.account, app.id],
    );
    await bench.sql(
      `insert into job_run (id, account_id, app_id, job_id, region_id, kind, command, timeout_ms, status, triggered_by)
       select $1, $2, $3, $4, region_id, 'manual', 'true', 10000, 'missed', 'schedule' from app where id = $3`,
      [randomUUID(), bench.account, app.id, job],
    );
    const hour = randomUUID();
    await bench.sql(
      `insert into usage_hour (id, account_id, app_id, kind, starts_at, ends_at) values ($1, $2, $3, 'run', now(), now() + interval '1 hour')`,
      [hour, bench.account, app.id],
    );
    await bench.sql(
      `insert into usage_life (hour_id, account_id, region_id, owner_id, life, vcpu, memory_mb, seq, running_ms, final, real)
       select $1, $2, region_id, id, 'l', 1, 512, 1, 1, true, true from app where id = $3`,
      [hour, bench.account, app.id],
    );
    await bench.sql(
      `insert into usage_part (hour_id, account_id, part, cpu_us, memory_mb_ms, description) values ($1, $2, 1, 0, 0, 'x')`,
      [hour, bench.account],
    );
    await eventually('a route', async () => (await bench.sql('select 1 from route')).length);
  });
  afterAll(async () => {
    await role?.end();
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('every table with an account has it enabled and forced, with one policy for reading and writing', async () => {
    expect(await bench.sql(securedTables, ['apps_builder'])).toEqual(secured(tenantTables));
  });

  it('the service owns nothing and cannot turn it off', async () => {
    await expect(role.query('alter table app disable row level security')).rejects.toThrow(/must be owner/);
    const { rows } = await role.query<{ super: boolean; bypass: boolean }>(
      'select rolsuper as super, rolbypassrls as bypass from pg_roles where rolname = current_user',
    );
    expect(rows).toEqual([{ super: false, bypass: false }]);
  });

  it.each(tenantTables)(
    '%s, without a filter in the statement: nothing without an account or of another one; nothing foreign can be erased',
    async (table) => {
      const view = await viewOf(role, table, { own: bench.account, stranger: bench.stranger.account_id });
      expect(view).toEqual({ nobody: 0, stranger: 0, own: expect.any(Number), erased: 0 });
      expect(view.own).toBeGreaterThan(0);
    },
  );

  it('writing as another account adds nothing', async () => {
    await role.query('begin');
    await role.query("select set_config('app.account', $1, true)", [bench.stranger.account_id]);
    await expect(
      role.query(
        "insert into app_domain (id, account_id, app_id, host, status) select gen_random_uuid(), $1, gen_random_uuid(), 'x.y', 'active'",
        [bench.account],
      ),
    ).rejects.toThrow(/row-level security/);
    await role.query('rollback');
  });

  it("mutation: with the service's own filter taken away, GET of one app still shows another account nothing", async () => {
    const app = await bench.app();
    const [{ source }] = (await bench.sql<{ source: string }>(
      "select pg_get_functiondef('app_get_many'::regproc) as source",
    )) as [{ source: string }];
    const mutant = source.replace(/ and a\.account_id = accounts\[place\]::uuid/, '');
    expect(mutant).not.toBe(source);
    await bench.sql(mutant);
    // Both accounts in one statement, the owner before and after the stranger.
    const callers = [bench.key, bench.stranger, bench.key, bench.stranger];
    const answers = await Promise.all(callers.map((as) => bench.api('GET', `apps/${app.id}`, undefined, as)));
    expect(answers.map(({ status }) => status)).toEqual([200, 404, 200, 404]);
    await bench.sql(source);
  });
});
