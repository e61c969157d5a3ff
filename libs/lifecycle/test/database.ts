import { commonMigrations, Database, migrate, roleUrl } from '@nebo/persistence';
import { freshDatabase } from '@nebo/test-kit';
import pg from 'pg';

/** The things that live in these tests, and a journal of what was done to them. */
const tables = `
  create table thing (id uuid primary key, wanted text not null default 'there', n int not null default 0, shown text);
  create table journal (at timestamptz not null default clock_timestamp(), id uuid not null, word text not null);`;

export interface TestSchema {
  db: Database;
  url: string;
  schema: string;
  /** Another pool of the same role. */
  open(): Database;
  admin(sql: string): Promise<void>;
  close(): Promise<void>;
}

export async function testSchema(schema = 'lifecycle_test'): Promise<TestSchema> {
  const adminUrl = await freshDatabase();
  await migrate(adminUrl, [{ schema, migrations: [commonMigrations], password: 'test' }]);
  const url = roleUrl(adminUrl, schema, 'test');
  const pools: Database[] = [];
  const open = () => {
    const db = new Database({ url, schema, max: 12 });
    pools.push(db);
    return db;
  };
  const admin = async (sql: string) => {
    const client = new pg.Client({ connectionString: adminUrl });
    await client.connect();
    try {
      await client.query(`set search_path to ${schema}; ${sql}`);
      await client.query(`grant all on all tables in schema ${schema} to nebo_${schema}`);
    } finally {
      await client.end();
    }
  };
  await admin(tables);
  return {
    db: open(),
    url,
    schema,
    open,
    admin,
    close: async () => {
      await Promise.all(pools.map((pool) => pool.close()));
    },
  };
}
