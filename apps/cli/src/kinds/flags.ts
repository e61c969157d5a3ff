import { type Option } from 'commander';
import { type Context } from '../core/context.js';
import { usageError } from '../core/errors.js';
import { flag, listFlag, type Options } from '../core/program.js';
import { type ContractTable, type TableField, type TableOperation } from '../contract/table.js';
import { references } from './kinds.js';
import { idOf } from './resolve.js';

/** Parts of a page: `--limit` says how many, and waiting is done by the commands themselves. */
const notFlags = new Set(['limit', 'offset', 'wait', 'timeout']);

/** A field of an operation that is a flag of its command. */
export interface FlagField {
  field: TableField;
  /** Where the request has it. */
  in: 'query' | 'body';
  /** Without the dashes. */
  flag: string;
}

/** The fields of an operation that are flags: whatever its query and body take, but for those that are arguments. */
export function flagFields(
  table: ContractTable,
  operation: TableOperation,
  without: readonly string[],
): FlagField[] {
  const record = operation.body?.record ? table.records[operation.body.record] : undefined;
  const named = (field: TableField): string =>
    references[field.name]?.flag ?? field.name.replaceAll('_', '-');
  return [
    ...operation.query.map((field) => ({ field, in: 'query' as const, flag: named(field) })),
    ...(record?.fields ?? []).map((field) => ({ field, in: 'body' as const, flag: named(field) })),
  ].filter(
    ({ field, in: where }) =>
      !(where === 'query' && notFlags.has(field.name)) && !without.includes(field.name),
  );
}

/** The flags as commander takes them. */
export function optionsOf(fields: readonly FlagField[]): Option[] {
  return fields.map(({ field, flag: name }) => {
    const about = [
      field.required && field.default === undefined ? 'needed' : '',
      field.about ?? '',
      field.values ? `one of ${field.values.join(', ')}` : '',
      field.nullable && field.type === 'string' ? '"" for none' : '',
    ].filter((part) => part !== '');
    const text = about.join('; ');
    if (field.type === 'array' && field.items?.type === 'string')
      return listFlag(
        `--${name} <${holder(name, field)}>`,
        `${text}${text ? '; ' : ''}may be given several times`,
      );
    if (field.type === 'boolean') return flag(`--${name} [true|false]`, text);
    return flag(`--${name} <${holder(name, field)}>`, text);
  });
}

function holder(name: string, field: TableField): string {
  if (references[field.name]) return `${name.toUpperCase()}|ID`;
  if (field.type === 'integer' || field.type === 'number') return 'N';
  return field.type === 'string' ? 'TEXT' : 'JSON';
}

/**
 * What the flags say, as fields of query and body.
 * @param ids of what the command is about, in which names of others are looked up
 * @throws CliError usage
 */
export async function valuesOf(
  ctx: Context,
  fields: readonly FlagField[],
  options: Options,
  ids: Readonly<Record<string, string>>,
): Promise<{ query: Record<string, string>; body: Record<string, unknown> }> {
  const query: Record<string, string> = {};
  const body: Record<string, unknown> = {};
  for (const { field, in: where, flag: name } of fields) {
    const given = options[camel(name)];
    if (given === undefined) continue;
    const value = await valueOf(ctx, field, name, given, ids);
    if (where === 'query') query[field.name] = String(value);
    else body[field.name] = value;
  }
  return { query, body };
}

const camel = (name: string): string => name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());

async function valueOf(
  ctx: Context,
  field: TableField,
  name: string,
  given: unknown,
  ids: Readonly<Record<string, string>>,
): Promise<unknown> {
  const reference = references[field.name];
  if (Array.isArray(given)) {
    if (!reference) return given;
    return Promise.all(given.map((one) => idOf(ctx, reference.kind, String(one), ids)));
  }
  if (given === true) return true;
  const text = String(given);
  if (text === '' && field.nullable) return null;
  if (reference) return idOf(ctx, reference.kind, text, ids);
  switch (field.type) {
    case 'integer':
    case 'number':
      if (!/^-?\d+(\.\d+)?$/.test(text)) throw usageError(`--${name} is a number, not "${text}"`);
      return Number(text);
    case 'boolean':
      if (text !== 'true' && text !== 'false') throw usageError(`--${name} is true or false, not "${text}"`);
      return text === 'true';
    case 'string':
      return text;
    default:
      try {
        return JSON.parse(text) as unknown;
      } catch {
        throw usageError(`--${name} is JSON, not "${text}"`);
      }
  }
}
