import pg from 'pg';

/** Values that PostgreSQL parameters take here; objects go in as JSON text by the caller. */
export type SqlValue = string | number | bigint | boolean | Date | Buffer | null | readonly string[];

/**
 * Something to run SQL on: a pool, one pg connection inside a transaction, or a Prisma transaction
 * (`prismaSql`). Libraries take this, so that an outbox row can be written in a service's Prisma transaction.
 * Table names need no schema: each service's database role has its schema as search_path.
 * int8 comes back as bigint, timestamptz as Date, jsonb parsed.
 */
export interface Sql {
  query<R = Record<string, unknown>>(text: string, values?: readonly SqlValue[]): Promise<R[]>;
}

/** The part of a Prisma (transaction) client that `prismaSql` needs. */
export interface PrismaRaw {
  $queryRawUnsafe<R>(text: string, ...values: unknown[]): Promise<R>;
}

/** A Prisma transaction as `Sql`. */
export function prismaSql(tx: PrismaRaw): Sql {
  return { query: (text, values = []) => tx.$queryRawUnsafe(text, ...values) };
}

const int8 = 20;

/** pg's type parsing with int8 as bigint: amounts and sequence numbers must not pass through a double. */
export const exactTypes: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') =>
    oid === int8 && format !== 'binary'
      ? (text: string) => BigInt(text)
      : pg.types.getTypeParser(oid, format as 'text')) as pg.CustomTypesConfig['getTypeParser'],
};

/**
 * A PostgreSQL array in its text form, for a parameter with a cast (`$1::bigint[]`). The driver's own way costs several times
 * as much for every value, which tells where hundreds of rows go in one statement.
 */
export function sqlArray(values: readonly (string | number | bigint | boolean | null | undefined)[]): string {
  let text = '{';
  for (const value of values) {
    if (text.length > 1) text += ',';
    if (value == null) text += 'NULL';
    else if (typeof value === 'string')
      text += `"${/["\\]/.test(value) ? value.replace(/["\\]/g, '\\$&') : value}"`;
    else text += String(value);
  }
  return `${text}}`;
}

/**
 * Names for statements that are said again and again, so that PostgreSQL parses and plans each once a connection: that costs
 * more than most of them take to run. A text gets its name when it comes the second time. What is put together anew each
 * time would only fill the server's memory, so there are at most a thousand names.
 */
class StatementNames {
  private readonly known = new Map<string, string | null>();
  private count = 0;

  of(text: string): string | undefined {
    const known = this.known.get(text);
    if (known) return known;
    if (known === undefined) {
      if (this.known.size < 1_000) this.known.set(text, null);
      return undefined;
    }
    this.count += 1;
    const name = `auto-${this.count}`;
    this.known.set(text, name);
    return name;
  }
}

/** Settings of one service's database access. */
export interface DatabaseOptions {
  /** Connection string of the service's own role. */
  url: string;
  /** The service's schema, its role's search_path. */
  schema: string;
  /** Pool size; the default suits one service among many in one process. */
  max?: number;
  /**
   * What row-level security sees outside of transactions: `system` for background work that serves all accounts and reads
   * without a transaction. Absent: no row.
   */
  account?: 'system';
  /** Told about errors of idle connections (a stopped PostgreSQL), which must not end the process. */
  onError?: (error: Error) => void;
}

/** Raw pg access of one service: the few hot reads, guarded statements, LISTEN. */
export class Database implements Sql {
  readonly pool: pg.Pool;
  readonly schema: string;
  readonly url: string;
  private readonly onError: (error: Error) => void;
  private readonly names = new StatementNames();

  constructor(options: DatabaseOptions) {
    this.schema = options.schema;
    this.url = options.url;
    this.onError = options.onError ?? (() => undefined);
    this.pool = new pg.Pool({
      connectionString: options.url,
      max: options.max ?? 6,
      types: exactTypes,
      application_name: `nebo-${options.schema}`,
      connectionTimeoutMillis: 5_000,
      ...(options.account ? { options: `-c app.account=${options.account}` } : {}),
    });
    this.pool.on('error', this.onError);
    // The pool listens to idle connections only; one that is cut in the middle of a transaction would end the process.
    this.pool.on('connect', (client) => client.on('error', this.onError));
  }

  /** Runs one statement on any connection of the pool. */
  async query<R>(text: string, values: readonly SqlValue[] = []): Promise<R[]> {
    const result = await this.pool.query(this.statement(text, values));
    return result.rows as R[];
  }

  /** Several statements in one text have no parameters, and cannot be prepared. */
  private statement(text: string, values: readonly SqlValue[]): pg.QueryConfig<SqlValue[]> {
    const name = values.length === 0 ? undefined : this.names.of(text);
    return { text, values: values as SqlValue[], ...(name ? { name } : {}) };
  }

  /** A named (prepared) statement: for the hot reads, where parsing would cost more than the read. */
  async named<R>(name: string, text: string, values: SqlValue[]): Promise<R[]> {
    const result = await this.pool.query({ name, text, values });
    return result.rows as R[];
  }

  /**
   * Runs `work` in one transaction; rolls back when it throws. Row-level security sees `account` (a uuid), or every row
   * when `account` is 'system' (background work that serves all accounts).
   */
  transaction<T>(work: (tx: Sql) => Promise<T>, account: string = 'system'): Promise<T> {
    return this.within('begin', work, account);
  }

  /** Reads in one transaction whose statements all see the data of one moment. */
  snapshot<T>(work: (tx: Sql) => Promise<T>, account: string = 'system'): Promise<T> {
    return this.within('begin isolation level repeatable read read only', work, account);
  }

  private async within<T>(begin: string, work: (tx: Sql) => Promise<T>, account: string): Promise<T> {
    const client = await this.begin(begin, account);
    let broken: Error | undefined;
    try {
      const result = await work({
        query: async <R>(text: string, values: readonly SqlValue[] = []) =>
          (await client.query(this.statement(text, values))).rows as R[],
      });
      await client.query('commit');
      return result;
    } catch (error) {
      await client.query('rollback').catch((rollback: Error) => (broken = rollback));
      // A table has got other columns: what this connection has prepared is of no use any more.
      if ((error as { code?: string }).code === '0A000') broken = error as Error;
      throw error;
    } finally {
      client.release(broken);
    }
  }

  /** A connection in a new transaction. One that was cut while it lay idle is replaced: nothing has happened on it yet. */
  private async begin(begin: string, account: string): Promise<pg.PoolClient> {
    for (let left = this.pool.options.max; ; left -= 1) {
      const client = await this.pool.connect();
      try {
        // One round trip for both.
        await client.query(`${begin}; set local app.account = ${pg.escapeLiteral(account)}`);
        return client;
      } catch (error) {
        client.release(error as Error);
        if (left === 0 || !isCut(error)) throw error;
      }
    }
  }

  /**
   * LISTENs on a channel until the returned function is called. The connection is made again after a loss; `onEvent` is
   * then called once with an empty payload, since notifications may have been missed.
   */
  async listen(channel: string, onEvent: (payload: string) => void): Promise<() => Promise<void>> {
    let stopped = false;
    let client: pg.Client | undefined;
    let retry: NodeJS.Timeout | undefined;
    const connect = async () => {
      client = new pg.Client({ connectionString: this.url, application_name: `nebo-${this.schema}-listen` });
      client.on('error', this.onError);
      client.on('end', () => {
        if (!stopped) retry = setTimeout(reconnect, 500);
      });
      client.on('notification', (message) => onEvent(message.payload ?? ''));
      await client.connect();
      await client.query(`listen ${pg.escapeIdentifier(channel)}`);
    };
    const reconnect = () => {
      connect().then(
        () => onEvent(''),
        () => client?.end().catch(() => undefined),
      );
    };
    try {
      await connect();
    } catch (error) {
      stopped = true;
      clearTimeout(retry);
      throw error;
    }
    return async () => {
      stopped = true;
      clearTimeout(retry);
      await client?.end().catch(() => undefined);
    };
  }

  /** Closes the pool; running statements finish first. */
  async close(): Promise<void> {
    await this.pool.end();
  }
}

/** Did the server, or the network, end the connection? Class 08, and the shutdowns of class 57. */
const isCut = (error: unknown): boolean => {
  const { code, message } = error as { code?: unknown; message: string };
  return typeof code === 'string'
    ? /^(08...|57P0[123]|ECONNRESET|EPIPE)$/.test(code)
    : /^Connection terminated|not queryable/.test(message);
};
