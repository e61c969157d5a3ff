import { type Io } from '../core/io.js';
import { type OutputFormat } from '../core/settings.js';
import { type Talk } from '../core/talk.js';
import { runFilter } from './jq.js';
import { page } from './pager.js';
import { aligned, cell, field, pickColumns, tabSeparated, type Column } from './table.js';

export interface PrintOptions {
  output: OutputFormat;
  columns: string | undefined;
  jq: string | undefined;
  header: boolean;
}

/** What was asked for, on stdout and nowhere else. */
export class Printer {
  constructor(
    private readonly io: Io,
    private readonly talk: Talk,
    private readonly options: PrintOptions,
    /** Style of a table's titles. */
    private readonly title: (text: string) => string,
  ) {}

  /** True when a program reads the answer: JSON, YAML or a filter. */
  get structured(): boolean {
    return this.options.jq !== undefined || this.options.output === 'json' || this.options.output === 'yaml';
  }

  get format(): OutputFormat {
    return this.options.output;
  }

  /** A list of records. @param name what identifies a record for `-o name` */
  async list<T extends object>(
    records: readonly T[],
    columns: readonly Column<T>[],
    name: (record: T) => string = nameOf,
  ): Promise<void> {
    if (this.structured) return this.value(records);
    if (this.options.output === 'name')
      return this.text(records.map((record) => `${name(record)}\n`).join(''));
    const picked = pickColumns(columns, this.options.columns, this.options.output === 'wide', records[0]);
    const rows = records.map((record) =>
      picked.map(({ key, text }) => cell(text ? text(record) : field(record, key))),
    );
    const { stdout } = this.io;
    if (!stdout.isTTY) return this.text(tabSeparated(rows));
    const header = this.options.header
      ? picked.map(({ key }) => key.toUpperCase().replaceAll('_', ' '))
      : null;
    if (rows.length === 0) return this.talk.notice('Nothing to list.');
    const text = aligned(rows, header, stdout.columns || 80, this.title);
    if (!(await page(text, this.io))) this.text(text);
  }

  /**
   * One record: JSON as it came, otherwise one field per line. Without `-o wide` empty fields are left out on a terminal.
   * @param more rows that the record does not hold, such as an address
   */
  async record<T extends object>(
    record: T,
    more: Record<string, unknown> = {},
    name: (record: T) => string = nameOf,
  ): Promise<void> {
    if (this.structured) return this.value(record);
    if (this.options.output === 'name') return this.text(`${name(record)}\n`);
    const all = { ...record, ...more };
    const wanted = this.options.columns;
    const keys = pickColumns(
      Object.keys(all).map((key) => ({ key })),
      wanted,
      true,
      all,
    ).map(({ key }) => key);
    const rows = keys.map((key) => [key, cell(field(all, key))]);
    if (!this.io.stdout.isTTY) return this.text(tabSeparated(rows));
    const shown = this.options.output === 'wide' || wanted ? rows : rows.filter(([, value]) => value !== '');
    this.text(aligned(shown, null, Math.max(this.io.stdout.columns || 80, 40), this.title));
  }

  /** A value as JSON, YAML or through the filter, whatever the output format is. */
  async value(value: unknown): Promise<void> {
    if (this.options.jq !== undefined) return this.text(await runFilter(value, this.options.jq));
    if (this.options.output === 'yaml') {
      const { stringify } = await import('yaml');
      return this.text(stringify(value, { lineWidth: 0 }));
    }
    this.text(`${JSON.stringify(value, null, 2)}\n`);
  }

  /** Text as it is. */
  text(text: string): void {
    this.talk.clear();
    this.io.stdout.write(text);
  }

  /** One line. */
  line(text: string): void {
    this.text(`${text}\n`);
  }
}

/** What a record is called on the command line. */
function nameOf(record: object): string {
  const { name, id } = record as { name?: unknown; id?: unknown };
  return String(name ?? id ?? '');
}
