/** One connection with the role of a service, as far as the checks need it (`pg.Client`). */
interface RoleConnection {
  query(
    text: string,
    values?: unknown[],
  ): Promise<{ rows: Record<string, unknown>[]; rowCount: number | null }>;
}

/** Row-level security as PostgreSQL has it on one table. */
export interface TableSecurity {
  name: string;
  enabled: boolean;
  /** Also for the table's owner. */
  forced: boolean;
  /** Policies that bind reading and writing. */
  policies: number;
}

/** Every table of a schema that has an account, by name: `select` over the catalogue, for the database's owner. */
export const securedTables = `select c.relname as name, c.relrowsecurity as enabled, c.relforcerowsecurity as forced,
    (select count(*)::int from pg_policy p where p.polrelid = c.oid and p.polqual is not null and p.polwithcheck is not null) as policies
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = $1 and c.relkind = 'r'
    and exists (select 1 from pg_attribute a where a.attrelid = c.oid and a.attname = 'account_id') order by 1`;

/** How `securedTables` has to answer. */
export const secured = (tables: readonly string[]): TableSecurity[] =>
  tables.map((name) => ({ name, enabled: true, forced: true, policies: 1 }));

/** What an account's view of a table is, without a filter in any statement. */
export interface TableView {
  /** Rows without an account, and with an empty one. */
  nobody: number;
  stranger: number;
  own: number;
  /** Rows that a stranger's `delete` of everything took away. */
  erased: number | null;
}

/** Looks at a table as the service's role; nothing is changed. */
export async function viewOf(
  role: RoleConnection,
  table: string,
  accounts: { own: string; stranger: string },
): Promise<TableView> {
  const within = async <T>(account: string | null, work: () => Promise<T>): Promise<T> => {
    await role.query('begin');
    try {
      if (account !== null) await role.query("select set_config('app.account', $1, true)", [account]);
      return await work();
    } finally {
      await role.query('rollback');
    }
  };
  const count = async () =>
    (await role.query(`select count(*)::int as count from ${table}`)).rows[0]!['count'] as number;
  return {
    nobody: (await within(null, count)) + (await within('', count)),
    stranger: await within(accounts.stranger, count),
    own: await within(accounts.own, count),
    erased: await within(accounts.stranger, async () => (await role.query(`delete from ${table}`)).rowCount),
  };
}
