import type { Connection, CustomTypesConfig, Submittable } from 'pg';
import { type SqlValue, sqlArray } from './sql-value.js';

/** One statement of an exchange. */
export interface Said {
  text: string;
  /** As `wireValues` makes them. */
  values: readonly (string | Buffer | null)[];
  /** Prepared under this name, once a connection; absent: parsed each time. */
  name?: string | undefined;
  /** What it answers is of no interest (`begin`, `commit`). */
  silent?: boolean;
}

/** How rows of a prepared statement are read. */
interface Field {
  name: string;
  parse(text: string): unknown;
}

/** The parts of pg's connection that are used here, as pg's own queries use them. */
interface Wire {
  readonly stream: { cork(): void; uncork(): void };
  parse(statement: { text: string; name: string; types: undefined }): void;
  bind(values: { statement: string; values: Said['values'] }): void;
  describe(what: { type: 'P'; name: '' }): void;
  execute(what: object): void;
  close(what: { type: 'S'; name: string }): void;
  sync(): void;
}

/**
 * What is prepared on each connection, by name: how its rows are read, which nobody need say again, or `unsure` where a
 * statement failed: its name may be taken.
 */
export type Prepared = WeakMap<object, Map<string, Field[] | 'unsure'>>;

/**
 * Several statements in one round trip, answered together: sent in one piece with one Sync at the end, so that after the
 * first that fails PostgreSQL passes over all others. A round trip costs both sides more than most statements take.
 */
export class Exchange implements Submittable {
  private readonly rows: Record<string, unknown>[][];
  private names: Map<string, Field[] | 'unsure'> = new Map();
  private fields: Field[] | null = null;
  private at = 0;

  /** @param done hears of the end, once: rows of those that were carried out, and the error of the next one */
  constructor(
    private readonly said: readonly Said[],
    private readonly types: CustomTypesConfig,
    private readonly prepared: Prepared,
    private readonly done: (rows: Record<string, unknown>[][], error: Error | null, failed: number) => void,
  ) {
    this.rows = said.map(() => []);
  }

  submit(connection: Connection): void {
    const wire = connection as unknown as Wire;
    this.names = this.prepared.get(wire) ?? this.names;
    this.prepared.set(wire, this.names);
    const sent = new Set<string>();
    wire.stream.cork();
    try {
      for (const one of this.said) {
        const { name = '', text, values, silent } = one;
        const known = this.names.get(name);
        if (!Array.isArray(known) && !sent.has(name)) {
          // Nothing happens to a name that is free.
          if (known === 'unsure') wire.close({ type: 'S', name });
          wire.parse({ text, name, types: undefined });
          if (name !== '') sent.add(name);
        }
        wire.bind({ statement: name, values });
        if (!silent && !Array.isArray(known)) wire.describe({ type: 'P', name: '' });
        wire.execute({});
      }
      wire.sync();
    } finally {
      wire.stream.uncork();
    }
  }

  handleRowDescription({ fields }: { fields: { name: string; dataTypeID: number }[] }): void {
    this.fields = fields.map(({ name, dataTypeID }) => ({
      name,
      parse: this.types.getTypeParser(dataTypeID, 'text') as Field['parse'],
    }));
  }

  handleDataRow({ fields: texts }: { fields: (string | null)[] }): void {
    this.fields ??= this.known();
    const row: Record<string, unknown> = {};
    for (let index = 0; index < texts.length; index += 1) {
      const { name, parse } = this.fields[index]!;
      const text = texts[index]!;
      row[name] = text === null ? null : parse(text);
    }
    this.rows[this.at]!.push(row);
  }

  private known(): Field[] {
    const known = this.names.get(this.said[this.at]!.name ?? '');
    return Array.isArray(known) ? known : [];
  }

  handleCommandComplete(): void {
    const { name } = this.said[this.at]!;
    if (name !== undefined && !Array.isArray(this.names.get(name))) this.names.set(name, this.fields ?? []);
    this.fields = null;
    this.at += 1;
  }

  handleEmptyQuery(): void {
    this.handleCommandComplete();
  }

  handlePortalSuspended(): void {}

  handleCopyInResponse(connection: { sendCopyFail(why: string): void }): void {
    connection.sendCopyFail('there is nothing to copy');
  }

  handleCopyData(): void {}

  handleReadyForQuery(): void {
    this.done(this.rows, null, this.at);
  }

  handleError(error: Error): void {
    const name = this.said[this.at]?.name;
    if (name !== undefined && !Array.isArray(this.names.get(name))) this.names.set(name, 'unsure');
    // Otherwise its stack leads to the socket.
    Error.captureStackTrace(error);
    this.done(this.rows, error, this.at);
  }
}

/** Parameters as PostgreSQL reads them, made before anything is sent. @throws RangeError for a date that is none */
export const wireValues = (values: readonly SqlValue[]): Said['values'] => values.map(wireValue);

function wireValue(value: SqlValue | undefined): string | Buffer | null {
  if (value == null) return null;
  if (typeof value === 'string' || Buffer.isBuffer(value)) return value;
  if (value instanceof Date) return value.toISOString();
  if (typeof value === 'object') return sqlArray(value);
  return String(value);
}
