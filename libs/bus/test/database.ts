import { commonMigrations, Database, migrate, roleUrl } from '@nebo/persistence';
import { freshDatabase } from '@nebo/test-kit';
import pg from 'pg';

/** A schema with the common tables in a database of its own, as a service would have it. */
export interface TestSchema {
  db: Database;
  /** Connection string of the service's role, for child processes. */
  url: string;
  schema: string;
  /** Another pool of the same role: another process's view. */
  open(): Database;
  /** Runs SQL as the superuser with the schema as search_path, and lets the role use the tables made. */
  admin(sql: string): Promise<void>;
  close(): Promise<void>;
}

export async function testSchema(schema = 'bus_test', more = ''): Promise<TestSchema> {
  const adminUrl = await freshDatabase();
  await migrate(adminUrl, [{ schema, migrations: [commonMigrations], password: 'test' }]);
  const url = roleUrl(adminUrl, schema, 'test');
  const pools: Database[] = [];
  const open = () => {
    const db = new Database({ url, schema, max: 10 });
    pools.push(db);
    return db;
  };
  const admin = async (sql: string) => {
    const client = new pg.Client({ connectionString: adminUrl });
    await client.connect();
    try {
      await client.query(`set search_path to ${schema}; ${sql}`);
      await client.query(`grant all on all tables in schema ${schema} to nebo_${schema};
        grant usage on all sequences in schema ${schema} to nebo_${schema}`);
    } finally {
      await client.end();
    }
  };
  if (more !== '') await admin(more);
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
