import type { UsageLine } from './usage.service.js';

const columns = [
  'at',
  'operation_id',
  'key_id',
  'model',
  'input_tokens',
  'cached_tokens',
  'output_tokens',
  'reasoning_tokens',
  'amount',
] as const satisfies readonly (keyof UsageLine)[];

/** A form of the exported file. */
export interface UsageFormat {
  type: string;
  extension: string;
  head: string;
  line(line: UsageLine): string;
}

/** RFC 4180, comma and CRLF. Text that a spreadsheet would run as a formula gets an apostrophe before it. */
function cell(value: string | number | null): string {
  if (value === null) return '';
  if (typeof value === 'number') return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const usageFormats: Readonly<Record<'csv' | 'ndjson', UsageFormat>> = {
  csv: {
    type: 'text/csv; charset=utf-8',
    extension: 'csv',
    head: `${columns.join(',')}\r\n`,
    line: (line) => `${columns.map((name) => cell(line[name])).join(',')}\r\n`,
  },
  ndjson: {
    type: 'application/x-ndjson',
    extension: 'ndjson',
    head: '',
    line: (line) => `${JSON.stringify(line)}\n`,
  },
};

/** The file in pieces, one for each page that was read. */
export async function* usageFile(
  format: UsageFormat,
  pages: AsyncIterable<UsageLine[]>,
): AsyncGenerator<string> {
  if (format.head) yield format.head;
  for await (const page of pages) yield page.map(format.line).join('');
}
