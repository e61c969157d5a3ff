import { type ContractTable, pathParameters, type TableField, type TableOperation } from './table.js';

/** A section of the contract with the number of its operations. */
export interface Section {
  section: string;
  operations: number;
}

/** The sections in the order of their names. */
export function sectionsOf(table: ContractTable): Section[] {
  const counts = new Map<string, number>();
  for (const { section } of table.operations) counts.set(section, (counts.get(section) ?? 0) + 1);
  return [...counts]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([section, operations]) => ({ section, operations }));
}

/** A field's type in words: "string", "array of string", "one of a, b", "string or null". */
export function typeText(field: TableField): string {
  const of = (type: string, record?: string) => record ?? type;
  let text = of(field.type, field.record);
  if (field.type === 'array' && field.items) text = `array of ${of(field.items.type, field.items.record)}`;
  if (field.values) text = field.values.join(' | ');
  return field.nullable ? `${text} | null` : text;
}

function fieldLines(fields: readonly TableField[], indent: string): string[] {
  const width = Math.max(0, ...fields.map(({ name }) => name.length));
  return fields.map((field) => {
    const limits =
      field.min !== undefined || field.max !== undefined ? `, ${field.min ?? ''}..${field.max ?? ''}` : '';
    const fallback = field.default === undefined ? '' : `, default ${JSON.stringify(field.default)}`;
    const need = field.required && field.default === undefined ? ', required' : '';
    const about = field.about ? `  ${field.about}` : '';
    return `${indent}${field.name.padEnd(width)}  ${typeText(field)}${limits}${fallback}${need}${about}`;
  });
}

/** Everything the contract says about an operation, for a person: parameters, body fields with types, answers. */
export function describeOperation(table: ContractTable, operation: TableOperation): string {
  const lines = [
    `${operation.method} ${operation.path}`,
    `  ${operation.summary}`,
    `  operation ${operation.id}, section ${operation.section}`,
  ];
  lines.push(`  permission ${operation.permissions.join(', ') || 'none: any live key'}`);
  const inPath = pathParameters(operation.path);
  if (inPath.length > 0) lines.push('', 'In the path', ...inPath.map((name) => `  ${name}`));
  if (operation.query.length > 0) lines.push('', 'Query', ...fieldLines(operation.query, '  '));
  const shown = new Set<string>();
  const record = (name: string | undefined, indent: string) => {
    if (name === undefined || shown.has(name)) return;
    shown.add(name);
    const { fields = [], closed } = table.records[name] ?? {};
    lines.push(...fieldLines(fields, indent));
    if (closed) lines.push(`${indent}(unknown fields are refused)`);
    for (const inner of fields) {
      const next = inner.record ?? inner.items?.record;
      if (next === undefined || shown.has(next)) continue;
      lines.push(`${indent}${next}:`);
      record(next, `${indent}  `);
    }
  };
  const { body } = operation;
  if (body) {
    lines.push('', `Body${body.required ? '' : ', optional'}: ${body.record ?? body.type}`);
    record(body.record, '  ');
    if (!body.record) lines.push('  a file: --input FILE');
  }
  for (const answer of operation.answers) {
    lines.push('', `Answer ${answer.status}: ${answer.record ?? answer.type ?? 'no body'}`);
    record(answer.record, '  ');
  }
  return `${lines.join('\n')}\n`;
}

/** The same for a program: the operation, and the records that it names. */
export function describeForPrograms(table: ContractTable, operation: TableOperation): object {
  const records: ContractTable['records'] = {};
  const add = (name: string | undefined) => {
    if (name === undefined || records[name] || !table.records[name]) return;
    records[name] = table.records[name];
    for (const field of table.records[name].fields) add(field.record ?? field.items?.record);
  };
  add(operation.body?.record);
  for (const answer of operation.answers) add(answer.record);
  return { ...operation, records };
}
