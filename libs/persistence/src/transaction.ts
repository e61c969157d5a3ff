import pg from 'pg';
import { Exchange, type Prepared, type Said } from './exchange.js';
import { type Sql } from './sql.js';
import { type SqlValue } from './sql-value.js';

/** A transaction that can be told when it ends. */
export interface Ending extends Sql {
  /**
   * Commits in the same round trip as what was said in this turn, unless something of it fails; nothing may be said after it.
   * What must not be committed has to fail in PostgreSQL: answers come when it is done.
   */
  commit(): Promise<void>;
}

/** What a transaction has of its database. */
export interface TransactionParts {
  connect(): Promise<pg.PoolClient>;
  /** Connections that may turn out to be cut before one is made anew. */
  retries: number;
  said(text: string, values: readonly SqlValue[]): Said;
  prepared: Prepared;
  types: pg.CustomTypesConfig;
}

interface Waiting {
  said: Said;
  resolve(rows: unknown): void;
  reject(error: Error): void;
}

const silent = (text: string): Said => ({ text, values: [], silent: true });

/** One transaction on one connection of the pool; made for one `run`. */
export class Transaction {
  private client: pg.PoolClient | undefined;
  private broken: Error | undefined;
  private state: 'new' | 'begun' | 'over' = 'new';
  private waiting: Waiting[] = [];
  private closes = false;
  /** Exchanges follow each other. */
  private turn: Promise<void> = Promise.resolve();

  constructor(
    private readonly parts: TransactionParts,
    private readonly begin: string,
    private readonly account: string,
  ) {}

  async run<T>(work: (tx: Ending) => Promise<T>): Promise<T> {
    try {
      const result = await work({
        query: async (text, values = []) =>
          values.length === 0 ? this.simple(text) : this.say(text, values),
        commit: async () => {
          this.open();
          this.closes = true;
          await this.wait(silent('commit'));
        },
      });
      await this.turn;
      if (this.state === 'begun') {
        this.state = 'over';
        await this.client!.query('commit');
      }
      return result;
    } catch (error) {
      await this.turn;
      if (this.client)
        await this.client.query('rollback').catch((rollback: Error) => (this.broken = rollback));
      // A table has got other columns: what this connection has prepared is of no use any more.
      if (isOfNoUse(error)) this.broken = error as Error;
      throw error;
    } finally {
      this.state = 'over';
      this.client?.release(this.broken);
    }
  }

  private say<R>(text: string, values: readonly SqlValue[]): Promise<R[]> {
    this.open();
    return this.wait(this.parts.said(text, values)) as Promise<R[]>;
  }

  private wait(said: Said): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const isFirst = this.waiting.length === 0;
      this.waiting.push({ said, resolve, reject });
      // What is said in this turn goes together.
      if (isFirst) queueMicrotask(() => (this.turn = this.turn.then(() => this.send())));
    });
  }

  /** A text without parameters, of one or more statements. */
  private async simple<R>(text: string): Promise<R[]> {
    this.open();
    const mine = this.turn.then(async () => {
      if (this.waiting.length > 0 || this.state === 'new') await this.send();
      return (await this.client!.query(text)).rows as R[];
    });
    this.turn = mine.then(
      () => undefined,
      () => undefined,
    );
    return mine;
  }

  private open(): void {
    if (this.state === 'over' || this.closes) throw new Error('the transaction is over');
  }

  /** Sends what waits, with the beginning before it where that is due. */
  private async send(): Promise<void> {
    const batch = this.waiting.splice(0);
    const begins = this.state === 'new';
    const before = begins
      ? [silent(this.begin), silent(`set local app.account = ${pg.escapeLiteral(this.account)}`)]
      : [];
    const said = [...before, ...batch.map((one) => one.said)];
    if (said.length === 0) return;
    const { rows, error, failed } = await this.carryOut(said, begins);
    if (error === null) this.state = this.closes ? 'over' : 'begun';
    else if (failed > 0) this.state = 'begun';
    // Nobody knows in which state it is.
    else this.broken = error;
    for (const [index, one] of batch.entries()) {
      // What was to be committed has not happened.
      if (error !== null && (this.closes || index + before.length >= failed)) one.reject(error);
      else one.resolve(rows[index + before.length]);
    }
    if (error !== null && batch.length === 0) throw error;
  }

  private async carryOut(said: readonly Said[], begins: boolean): Promise<Outcome> {
    for (let left = this.parts.retries; ; left -= 1) {
      try {
        this.client ??= await this.parts.connect();
      } catch (error) {
        return { rows: [], error: error as Error, failed: 0 };
      }
      const client = this.client;
      const outcome = await new Promise<Outcome>((done) => {
        client.query(
          new Exchange(said, this.parts.types, this.parts.prepared, (rows, error, failed) =>
            done({ rows, error, failed }),
          ),
        );
      });
      // One that was cut while it lay idle is replaced: nothing has happened on it that was committed.
      const again =
        begins && left > 0 && isCut(outcome.error) && (!this.closes || this.begin.endsWith('only'));
      if (!again) return outcome;
      client.release(outcome.error!);
      this.client = undefined;
    }
  }
}

interface Outcome {
  rows: Record<string, unknown>[][];
  error: Error | null;
  failed: number;
}

/** What a connection has prepared cannot be used any more. */
export const isOfNoUse = (error: unknown): boolean =>
  (error as { code?: string } | null)?.code === '0A000' || isCut(error);

/** Did the server, or the network, end the connection? Class 08, and the shutdowns of class 57. */
function isCut(error: unknown): boolean {
  if (error == null) return false;
  const { code, message } = error as { code?: unknown; message: string };
  return typeof code === 'string'
    ? /^(08...|57P0[123]|ECONNRESET|EPIPE)$/.test(code)
    : /^Connection terminated|not queryable/.test(message);
}
