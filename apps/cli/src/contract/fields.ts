import { readFile } from 'node:fs/promises';
import { usageError } from '../core/errors.js';
import { nearestText } from '../core/suggest.js';
import {
  pathParameters,
  type ContractTable,
  type FieldType,
  type TableField,
  type TableOperation,
} from './table.js';

/** One `-f name=value` or `-F name=value`. */
export interface GivenField {
  /** Steps of `a[b][]`: `['a', 'b', '']`; an empty step is "append to the list". */
  steps: string[];
  value: unknown;
  /** From `-F`: the value has the type that its text looks like. */
  typed: boolean;
}

/** Where the contract puts the fields. */
export interface PlacedFields {
  path: Record<string, string>;
  query: Record<string, string[]>;
  /** Null when no field belongs into the body. */
  body: Record<string, unknown> | null;
}

/**
 * Reads `name=value`. With `-F`: true, false, null and numbers are themselves, `@file` is the file's text (`@-` stdin),
 * `{…}` and `[…]` are JSON.
 * @throws CliError usage
 */
export async function parseField(
  text: string,
  typed: boolean,
  stdin: () => Promise<string>,
): Promise<GivenField> {
  const flag = typed ? '-F' : '-f';
  const equals = text.indexOf('=');
  const name = equals < 0 ? text : text.slice(0, equals);
  if (equals <= 0) throw usageError(`${flag} takes name=value, not "${text}"`);
  const steps = name.match(/^[^[\]]+|\[[^[\]]*\]/g) ?? [];
  if (steps.join('') !== name)
    throw usageError(`${flag}: "${name}" is not a field name such as a, a[b] or a[]`);
  const raw = text.slice(equals + 1);
  return {
    steps: steps.map((step) => (step.startsWith('[') ? step.slice(1, -1) : step)),
    value: typed ? await typedValue(raw, name, stdin) : raw,
    typed,
  };
}

async function typedValue(raw: string, name: string, stdin: () => Promise<string>): Promise<unknown> {
  if (raw === 'true') return true;
  if (raw === 'false') return false;
  if (raw === 'null') return null;
  if (/^-?(0|[1-9]\d*)(\.\d+)?$/.test(raw) && Number.isFinite(Number(raw))) return Number(raw);
  if (raw === '@-') return stdin();
  if (raw.startsWith('@')) return readFile(raw.slice(1), 'utf8');
  if (/^[[{]/.test(raw)) {
    try {
      return JSON.parse(raw) as unknown;
    } catch {
      throw usageError(`-F ${name}: the value begins like JSON and is not`);
    }
  }
  return raw;
}

/**
 * Sorts fields into path, query and body as the contract says.
 * @param check false (`--no-check`): unknown fields go into the body, or the query of a GET and DELETE
 * @throws CliError usage for an unknown or wrongly typed field
 */
export function placeFields(
  table: ContractTable,
  operation: TableOperation,
  fields: readonly GivenField[],
  check: boolean,
): PlacedFields {
  const placed: PlacedFields = { path: {}, query: {}, body: null };
  const inPath = pathParameters(operation.path);
  const record = operation.body?.record ? table.records[operation.body.record] : undefined;
  for (const given of fields) {
    const name = given.steps[0]!;
    const single = given.steps.length === 1;
    const queryField = operation.query.find((one) => one.name === name);
    const bodyField = record?.fields.find((one) => one.name === name);
    if (inPath.includes(name) && single && !bodyField) placed.path[name] = String(given.value);
    else if (queryField && !bodyField) {
      if (check) checkValue(table, queryField, given.value, name, true);
      if (given.value !== null) (placed.query[name] ??= []).push(String(given.value));
    } else if (
      bodyField ||
      (!check && !['GET', 'DELETE'].includes(operation.method)) ||
      (operation.body && !record)
    ) {
      if (operation.body && !/json/.test(operation.body.type))
        throw usageError(`${operation.id} takes a file of type ${operation.body.type}, no fields`, {
          hint: 'Send it with --input FILE',
        });
      put((placed.body ??= {}), given.steps, given.value, name);
    } else if (!check) (placed.query[name] ??= []).push(String(given.value));
    else
      throw unknownField(operation, name, [
        ...inPath,
        ...operation.query.map((one) => one.name),
        ...(record?.fields ?? []).map((one) => one.name),
      ]);
  }
  return placed;
}

function unknownField(operation: TableOperation, name: string, names: readonly string[]): Error {
  const near = nearestText(name, names, 5);
  return usageError(`${operation.method} ${operation.path} has no field "${name}"`, {
    lines: [...(near ? [near] : []), names.length > 0 ? `Fields: ${names.join(', ')}` : 'It takes no fields'],
    hint: `nebo api --describe ${operation.method} ${operation.path} — or --no-check, if the server is newer than this nebo`,
    extra: { fields: names },
  });
}

function put(into: Record<string, unknown>, steps: readonly string[], value: unknown, name: string): void {
  let here: Record<string, unknown> | unknown[] = into;
  steps.forEach((step, index) => {
    const last = index === steps.length - 1;
    const fresh = () => (last ? value : steps[index + 1] === '' ? [] : {});
    if (Array.isArray(here)) {
      if (step !== '') throw usageError(`"${name}" is a list: write ${name}[]=…`);
      const next = fresh();
      here.push(next);
      here = next as Record<string, unknown>;
    } else {
      if (step === '') throw usageError(`"${name}" is given once as a list and once not`);
      // Defined, not assigned: a field may be called "__proto__".
      if (last || !Object.hasOwn(here, step))
        Object.defineProperty(here, step, {
          value: fresh(),
          enumerable: true,
          writable: true,
          configurable: true,
        });
      here = here[step] as Record<string, unknown>;
      if (!last && (typeof here !== 'object' || here === null))
        throw usageError(`"${name}" is given twice, in different forms`);
    }
  });
}

/**
 * Checks a JSON body against the record of the contract.
 * @throws CliError usage with the nearest names for an unknown field
 */
export function checkBody(table: ContractTable, operation: TableOperation, body: unknown): void {
  const name = operation.body?.record;
  if (name === undefined) return;
  if (body === null && !operation.body!.required) return;
  checkRecord(table, operation, name, body, '');
}

function checkRecord(
  table: ContractTable,
  operation: TableOperation,
  name: string,
  value: unknown,
  where: string,
): void {
  const record = table.records[name];
  if (!record || record.fields.length === 0) return;
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw wrongType(where || 'the body', 'object', value);
  const names = record.fields.map((one) => one.name);
  for (const [key, inner] of Object.entries(value)) {
    const known = record.fields.find((one) => one.name === key);
    if (!known)
      throw unknownField(
        operation,
        where + key,
        names.map((one) => where + one),
      );
    checkValue(table, known, inner, where + key, false);
    const nested = known.record ?? known.items?.record;
    if (!nested || inner === null) continue;
    for (const [index, one] of (Array.isArray(inner) ? inner : [inner]).entries())
      checkRecord(table, operation, nested, one, `${where}${key}${Array.isArray(inner) ? `.${index}` : ''}.`);
  }
  const absent = record.fields.filter(
    (one) => one.required && one.default === undefined && !Object.hasOwn(value, one.name),
  );
  if (absent.length > 0) {
    throw usageError(
      `${operation.method} ${operation.path} needs ${absent.map((one) => `"${where}${one.name}"`).join(', ')}`,
      {
        hint: `nebo api --describe ${operation.method} ${operation.path}`,
        extra: { missing: absent.map((one) => where + one.name) },
      },
    );
  }
}

function checkValue(
  table: ContractTable,
  of: TableField,
  value: unknown,
  name: string,
  query: boolean,
): void {
  if (value === null) {
    if (of.nullable || query) return;
    throw wrongType(name, of.type, value);
  }
  // In a query everything is text; what counts is what it looks like.
  const seen = query && typeof value === 'string' ? fromText(value, of.type) : value;
  if (!hasType(seen, of.type)) throw wrongType(name, of.type, value);
  if (of.values && !of.values.includes(String(seen))) {
    throw usageError(`"${name}" is one of ${of.values.join(', ')}, not "${String(seen)}"`, {
      extra: { choices: of.values },
    });
  }
  if (of.items && Array.isArray(seen))
    for (const [index, one] of seen.entries())
      if (!hasType(one, of.items.type)) throw wrongType(`${name}[${index}]`, of.items.type, one);
  const measure = typeof seen === 'number' ? seen : typeof seen === 'string' ? [...seen].length : null;
  if (measure === null || of.type === 'array') return;
  const unit = typeof seen === 'string' ? ' characters long' : '';
  if (of.min !== undefined && measure < of.min)
    throw usageError(`"${name}" must be at least ${of.min}${unit}`);
  if (of.max !== undefined && measure > of.max)
    throw usageError(`"${name}" must be at most ${of.max}${unit}`);
}

function fromText(text: string, type: FieldType): unknown {
  if ((type === 'integer' || type === 'number') && /^-?\d+(\.\d+)?$/.test(text)) return Number(text);
  if (type === 'boolean' && /^(true|false)$/.test(text)) return text === 'true';
  return text;
}

function hasType(value: unknown, type: FieldType): boolean {
  if (type === 'any') return true;
  if (type === 'integer') return Number.isSafeInteger(value);
  if (type === 'array') return Array.isArray(value);
  if (type === 'object') return typeof value === 'object' && value !== null && !Array.isArray(value);
  return typeof value === type;
}

function wrongType(name: string, type: FieldType, value: unknown): Error {
  const is =
    value === null
      ? 'null'
      : Array.isArray(value)
        ? 'a list'
        : `${typeof value === 'object' ? 'an object' : `the ${typeof value}`} ${JSON.stringify(value)}`;
  const hint =
    typeof value === 'string' && type !== 'string' && type !== 'object'
      ? type === 'array'
        ? `-f gives text; a list is -f ${name}[]=a -f ${name}[]=b`
        : `-f gives text; -F gives ${type}: -F ${name}=${value}`
      : type === 'string'
        ? `-F reads numbers, true, false and null; -f gives text`
        : undefined;
  return usageError(`"${name}" must be of type ${type}, not ${is}`, { hint });
}
