import { usageError } from '../core/errors.js';
import { forTerminal } from '../core/io.js';
import { nearestText } from '../core/suggest.js';
import { fit, width } from './width.js';

/** One column of a list. */
export interface Column<T> {
  /** Field of the record, dots for fields inside; also the name for `--columns`. */
  key: string;
  /** Only with `-o wide`. */
  wide?: boolean;
  /** Another text than the field's own. */
  text?: (record: T) => unknown;
}

/** A field by its dotted path. */
export function field(record: unknown, path: string): unknown {
  return path
    .split('.')
    .reduce<unknown>(
      (value, step) =>
        typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[step] : undefined,
      record,
    );
}

/** A value in one cell: empty for null, JSON for what is no scalar. */
export function cell(value: unknown): string {
  if (value === null || value === undefined) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/**
 * The columns that were asked for.
 * @param wanted the value of `--columns`, or undefined for the usual ones
 * @param sample a record, so that every field of it may be a column
 * @throws CliError usage for an unknown one
 */
export function pickColumns<T>(
  columns: readonly Column<T>[],
  wanted: string | undefined,
  wide: boolean,
  sample: T | undefined,
): readonly Column<T>[] {
  if (wanted === undefined) return columns.filter((column) => wide || !column.wide);
  const names = [...new Set([...columns.map(({ key }) => key), ...Object.keys((sample ?? {}) as object)])];
  return wanted
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '')
    .map((name) => {
      const known = columns.find(({ key }) => key === name);
      if (known) return known;
      if (!names.includes(name) && (sample === undefined || field(sample, name) === undefined)) {
        const near = nearestText(name, names);
        throw usageError(`There is no column "${name}"`, {
          lines: [...(near ? [near] : []), `Columns: ${names.join(', ')}`],
        });
      }
      return { key: name };
    });
}

/** Rows for programs: one per line, cells parted by tabs, nothing cut; tabs and line ends inside a cell as \t and \n. */
export function tabSeparated(rows: readonly (readonly string[])[]): string {
  const escape = (text: string) =>
    text.replace(/[\\\t\n\r]/g, (char) => ({ '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' })[char]!);
  return rows.map((row) => `${row.map(escape).join('\t')}\n`).join('');
}

/**
 * Rows for people: aligned, and cut where the terminal ends.
 * @param columns width of the terminal
 * @param header titles, or null for none
 */
export function aligned(
  rows: readonly (readonly string[])[],
  header: readonly string[] | null,
  columns: number,
  style: (title: string) => string,
): string {
  const clean = rows.map((row) => row.map((text) => forTerminal(text.replace(/[\t\n\r]+/g, ' '), false)));
  const all = header ? [header, ...clean] : clean;
  const widths = (all[0] ?? []).map((_, index) => Math.max(...all.map((row) => width(row[index] ?? ''))));
  // The widest column gives way first, so that ids and states stay whole as long as they can.
  let over = widths.reduce((sum, one) => sum + one + 2, -2) - columns;
  while (over > 0) {
    const widest = widths.indexOf(Math.max(...widths));
    if (widths[widest]! <= 8) break;
    const next = Math.max(8, ...widths.filter((_, index) => index !== widest));
    const cut = Math.max(1, Math.min(over, widths[widest]! - next));
    widths[widest]! -= cut;
    over -= cut;
  }
  const line = (row: readonly string[]) =>
    row
      .map((text, index) => {
        const shown = fit(text, widths[index]!);
        return index === row.length - 1 ? shown : shown + ' '.repeat(widths[index]! - width(shown) + 2);
      })
      .join('')
      .trimEnd();
  return all.map((row, index) => `${header && index === 0 ? style(line(row)) : line(row)}\n`).join('');
}
