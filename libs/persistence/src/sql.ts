import pg from 'pg';
import { Exchange, type Prepared, type Said, wireValues } from './exchange.js';
import { type SqlValue } from './sql-value.js';
import { isOfNoUse, Transaction, type Ending } from './transaction.js';

export { type SqlValue, sqlArray } from './sql-value.js';
export { type Ending } from './transaction.js';

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
  private isClosing = false;
  private readonly names = new StatementNames();
  private readonly prepared: Prepared = new WeakMap();

  constructor(options: DatabaseOptions) {
    this.schema = options.schema;
    this.url = options.url;
    // Connections that are ending may still hear that PostgreSQL stops, which is no loss then.
    this.onError = (error) => void (this.isClosing || options.onError?.(error));
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
    // Several statements in one text have no parameters, and cannot be prepared.
    if (values.length === 0) return (await this.pool.query(text)).rows as R[];
    const client = await this.pool.connect();
    let broken: Error | undefined;
    try {
      const [rows] = await this.exchange(client, [this.said(text, values)]);
      return rows as R[];
    } catch (error) {
      if (isOfNoUse(error)) broken = error as Error;
      throw error;
    } finally {
      client.release(broken);
    }
  }

  /** A statement as an exchange says it. */
  private said(text: string, values: readonly SqlValue[]): Said {
    return { text, values: wireValues(values), name: this.names.of(text) };
  }

  /** Several statements in one round trip. @throws what PostgreSQL says of the first that fails; those after it are not run */
  private exchange(client: pg.PoolClient, said: readonly Said[]): Promise<Record<string, unknown>[][]> {
    return new Promise((resolve, reject) => {
      client.query(
        new Exchange(said, exactTypes, this.prepared, (rows, error) =>
          error === null ? resolve(rows) : reject(error),
        ),
      );
    });
  }

  /** A named (prepared) statement: for the hot reads, where parsing would cost more than the read. */
  async named<R>(name: string, text: string, values: SqlValue[]): Promise<R[]> {
    const result = await this.pool.query({ name, text, values });
    return result.rows as R[];
  }

  /**
   * Runs `work` in one transaction; rolls back when it throws. Row-level security sees `account` (a uuid), or every row
   * when `account` is 'system' (background work that serves all accounts). It begins with the first statement, in the same
   * round trip. Statements that are said in one turn, without waiting for each other, share a round trip too.
   */
  transaction<T>(work: (tx: Ending) => Promise<T>, account: string = 'system'): Promise<T> {
    return this.within('begin', work, account);
  }

  /** Reads in one transaction whose statements all see the data of one moment. */
  snapshot<T>(work: (tx: Sql) => Promise<T>, account: string = 'system'): Promise<T> {
    return this.within('begin isolation level repeatable read read only', work, account);
  }

  /** One statement that only reads, in a transaction of its own, in one round trip. `account` as in `transaction`. */
  read<R>(text: string, values: readonly SqlValue[], account: string = 'system'): Promise<R[]> {
    const work = async (tx: Ending) => (await Promise.all([tx.query<R>(text, values), tx.commit()]))[0];
    return this.within('begin read only', work, account);
  }

  private within<T>(begin: string, work: (tx: Ending) => Promise<T>, account: string): Promise<T> {
    const parts = {
      connect: () => this.pool.connect(),
      retries: this.pool.options.max,
      said: (text: string, values: readonly SqlValue[]) => this.said(text, values),
      prepared: this.prepared,
      types: exactTypes,
    };
    return new Transaction(parts, begin, account).run(work);
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
    this.isClosing = true;
    await this.pool.end();
  }
}
