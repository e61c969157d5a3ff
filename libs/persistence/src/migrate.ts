import { createHash, randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';

/** What one service needs in the database. */
export interface SchemaPlan {
  /** PostgreSQL schema and the tail of the role's name. */
  schema: string;
  /** Folders of Prisma-style migrations (`<time>_<name>/migration.sql`), applied in this order. */
  migrations: (URL | string)[];
  /** Password of the service's role `nebo_<schema>`; null where roles are made by the operator. */
  password: string | null;
}

/** Migrations of the tables that every service has: outbox, inbox, idempotency keys, lifecycles. */
export const commonMigrations = new URL('../migrations/', import.meta.url);

/** PostgreSQL's advisory lock of all migrators, so that replicas that start together take turns. */
const migrationLock = 4_738_201;

/**
 * Makes the schema, the service's own role and applies migrations that are missing, one transaction each, recording them
 * in `_prisma_migrations` in Prisma's format, so that its tools accept them as applied.
 * @param url connection string of a role that may create schemas and roles
 * @returns names of the migrations applied now
 * @throws Error naming the migration and PostgreSQL's words when one fails, or when an applied file was changed
 */
export async function migrate(url: string, plans: readonly SchemaPlan[]): Promise<string[]> {
  const client = new pg.Client({ connectionString: url, application_name: 'nebo-migrate' });
  client.on('error', () => undefined);
  await client.connect();
  const applied: string[] = [];
  try {
    await client.query('select pg_advisory_lock($1)', [migrationLock]);
    for (const plan of plans) applied.push(...(await migrateSchema(client, plan)));
    await client.query('select pg_advisory_unlock($1)', [migrationLock]);
  } finally {
    await client.end();
  }
  return applied;
}

async function migrateSchema(client: pg.Client, plan: SchemaPlan): Promise<string[]> {
  const schema = pg.escapeIdentifier(plan.schema);
  await client.query(`create schema if not exists ${schema}`);
  const before = await client.query<{ search_path: string }>('show search_path');
  await client.query(`set search_path to ${schema}`);
  await client.query(`create table if not exists _prisma_migrations (
    id varchar(36) primary key, checksum varchar(64) not null, finished_at timestamptz, migration_name varchar(255) not null,
    logs text, rolled_back_at timestamptz, started_at timestamptz not null default now(), applied_steps_count integer not null default 0)`);
  const rows = await client.query<{ migration_name: string; checksum: string }>(
    'select migration_name, checksum from _prisma_migrations where finished_at is not null',
  );
  const known = new Map(rows.rows.map((row) => [row.migration_name, row.checksum]));
  const applied: string[] = [];
  for (const { name, sql } of await readMigrations(plan.migrations)) {
    const checksum = createHash('sha256').update(sql).digest('hex');
    const present = known.get(name);
    if (present === checksum) continue;
    if (present !== undefined) {
      throw new Error(
        `migration ${plan.schema}/${name} was changed after it had been applied; add a new one instead`,
      );
    }
    try {
      await client.query('begin');
      await client.query(sql);
      await client.query(
        'insert into _prisma_migrations (id, checksum, finished_at, migration_name, applied_steps_count) values ($1, $2, now(), $3, 1)',
        [randomUUID(), checksum, name],
      );
      await client.query('commit');
    } catch (error) {
      await client.query('rollback');
      throw new Error(`migration ${plan.schema}/${name} failed: ${(error as Error).message}`, {
        cause: error,
      });
    }
    applied.push(`${plan.schema}/${name}`);
  }
  if (plan.password !== null) await ensureRole(client, plan.schema, plan.password);
  await client.query(`set search_path to ${before.rows[0]!.search_path}`);
  return applied;
}

/** The service's login: owns nothing, so FORCEd row-level security binds it, and reaches its own schema only. */
async function ensureRole(client: pg.Client, schema: string, password: string): Promise<void> {
  const role = `nebo_${schema}`;
  const quoted = pg.escapeIdentifier(role);
  const secret = pg.escapeLiteral(password);
  const present = await client.query('select 1 from pg_roles where rolname = $1', [role]);
  // Only a superuser may say `nosuperuser` of a role that exists; a new one gets it from whoever may create roles.
  if (present.rowCount === 0)
    await client.query(`create role ${quoted} login nosuperuser nobypassrls password ${secret}`);
  else await client.query(`alter role ${quoted} login password ${secret}`);
  const inSchema = pg.escapeIdentifier(schema);
  await client.query(`alter role ${quoted} set search_path to ${inSchema}`);
  await client.query(`grant usage on schema ${inSchema} to ${quoted}`);
  await client.query(`grant select, insert, update, delete on all tables in schema ${inSchema} to ${quoted}`);
  await client.query(`grant usage, select on all sequences in schema ${inSchema} to ${quoted}`);
  await client.query(`grant execute on all functions in schema ${inSchema} to ${quoted}`);
}

async function readMigrations(folders: readonly (URL | string)[]): Promise<{ name: string; sql: string }[]> {
  const found: { name: string; sql: string }[] = [];
  for (const folder of folders) {
    const path = typeof folder === 'string' ? folder : fileURLToPath(folder);
    const names = (await readdir(path, { withFileTypes: true })).filter((entry) => entry.isDirectory());
    for (const { name } of names.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      found.push({ name, sql: await readFile(join(path, name, 'migration.sql'), 'utf8') });
    }
  }
  return found;
}

/** The connection string of a service's own role, made from the administrator's. */
export function roleUrl(adminUrl: string, schema: string, password: string): string {
  const url = new URL(adminUrl);
  url.username = `nebo_${schema}`;
  url.password = encodeURIComponent(password);
  return url.toString();
}
