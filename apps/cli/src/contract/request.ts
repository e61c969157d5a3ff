import { readFile, stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { type Context } from '../core/context.js';
import { usageError } from '../core/errors.js';
import { type Options } from '../core/program.js';
import { needAppId, needProject } from '../core/resolve.js';
import { readAll, readBytes } from '../core/stdin.js';
import { type WireBody } from '../http/transport.js';
import { normalPath } from './find.js';
import { checkBody, parseField, placeFields, type GivenField } from './fields.js';
import { pathParameters, type ContractTable, type TableOperation } from './table.js';

/** A request that is ready but for the ids in its path. */
export interface ApiRequest {
  method: string;
  path: string;
  query: Record<string, string[]>;
  contentType: string | null;
  body: WireBody | null;
  /** The JSON text of the body, for `--dry-run`. */
  bodyText: string | null;
  /** Where the body's bytes come from, `-` for stdin. */
  bodyFile: string | null;
  /** The answer that the contract promises. */
  accept: string;
}

/** Reads all `-f` and `-F`; stdin is read once at most. */
async function givenFields(ctx: Context, options: Options): Promise<GivenField[]> {
  let stdin: Promise<string> | undefined;
  const read = () => (stdin ??= readAll(ctx.io.stdin));
  const fields: GivenField[] = [];
  for (const text of (options['field'] as string[] | undefined) ?? [])
    fields.push(await parseField(text, false, read));
  for (const text of (options['typedField'] as string[] | undefined) ?? [])
    fields.push(await parseField(text, true, read));
  return fields;
}

function searchFields(search: string | undefined): GivenField[] {
  return [...new URLSearchParams(search ?? '')].map(([name, value]) => ({
    steps: [name],
    value,
    typed: false,
  }));
}

/**
 * Puts a request together as the contract says.
 * @param values ids found in the path that was typed
 * @param search text behind the path's `?`
 * @throws CliError usage for whatever the contract does not know; nothing has been sent then
 */
export async function buildRequest(
  ctx: Context,
  table: ContractTable,
  operation: TableOperation,
  values: Readonly<Record<string, string>>,
  search: string | undefined,
  options: Options,
  check: boolean,
): Promise<ApiRequest & { pathValues: Record<string, string> }> {
  const fields = [...searchFields(search), ...(await givenFields(ctx, options))];
  const placed = placeFields(table, operation, fields, check);
  const input = options['input'] as string | undefined;
  if (input !== undefined && placed.body !== null)
    throw usageError('The body comes from --input or from fields, not from both');
  if (input !== undefined && !operation.body && check)
    throw usageError(`${operation.method} ${operation.path} takes no body, so no --input`);
  const request: ApiRequest = {
    method: operation.method,
    path: operation.path,
    query: placed.query,
    contentType: null,
    body: null,
    bodyText: null,
    bodyFile: null,
    accept: operation.answers[0]?.type ?? 'application/json',
  };
  const type = operation.body?.type ?? 'application/json';
  if (input !== undefined)
    Object.assign(request, await bodyFromInput(ctx, table, operation, input, type, check));
  else if (placed.body !== null) {
    if (check) checkBody(table, operation, placed.body);
    Object.assign(request, jsonText(JSON.stringify(placed.body)));
  } else if (operation.body?.required && check) {
    if (!/json/.test(type))
      throw usageError(`${operation.method} ${operation.path} needs a body of type ${type}`, {
        hint: 'Send it with --input FILE',
      });
    // Says which fields are needed; a record without any is sent as an empty object.
    checkBody(table, operation, {});
    Object.assign(request, jsonText('{}'));
  }
  return { ...request, pathValues: { ...values, ...placed.path } };
}

/** `--no-check` with a path that the contract lacks: fields go into the query of a GET or DELETE, else into the body. */
export async function requestWithoutContract(
  ctx: Context,
  method: string,
  path: string,
  search: string | undefined,
  options: Options,
): Promise<ApiRequest> {
  const bodied = method !== 'GET' && method !== 'DELETE';
  const anything: TableOperation = {
    id: path,
    method,
    path: normalPath(path),
    section: '',
    summary: '',
    permissions: [],
    query: [],
    ...(bodied ? { body: { type: 'application/json', required: false } } : {}),
    answers: [],
  };
  const request = await buildRequest(
    ctx,
    { version: '', operations: [], records: {} },
    anything,
    {},
    undefined,
    options,
    false,
  );
  for (const { steps, value } of searchFields(search)) (request.query[steps[0]!] ??= []).push(String(value));
  return request;
}

async function bodyFromInput(
  ctx: Context,
  table: ContractTable,
  operation: TableOperation,
  input: string,
  type: string,
  check: boolean,
): Promise<Partial<ApiRequest>> {
  const path = resolve(ctx.io.cwd, input);
  if (input !== '-') {
    const info = await stat(path).catch(() => null);
    if (!info?.isFile()) throw usageError(`--input: there is no file ${input}`);
  }
  if (!/json/.test(type)) {
    // A file is streamed; stdin is kept, so that a retry can send it again.
    const body: WireBody =
      input === '-' ? { kind: 'bytes', bytes: await readBytes(ctx.io.stdin) } : { kind: 'file', path };
    return { body, contentType: type, bodyFile: input };
  }
  const text = input === '-' ? await readAll(ctx.io.stdin) : await readFile(path, 'utf8');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw usageError(`--input is not JSON: ${(error as Error).message}`);
  }
  if (check) checkBody(table, operation, value);
  return jsonText(text);
}

function jsonText(text: string): Partial<ApiRequest> {
  return {
    body: { kind: 'bytes', bytes: Buffer.from(text) },
    bodyText: text,
    contentType: 'application/json',
  };
}

/**
 * The ids of a path. `{app_id}` and `{project_id}` come from flags, environment and link when they are not given.
 * @throws CliError usage for an id that is not known
 */
export async function fillPlaceholders(
  ctx: Context,
  operation: TableOperation,
  given: Readonly<Record<string, string>>,
): Promise<Record<string, string>> {
  const values: Record<string, string> = { ...given };
  const absent = pathParameters(operation.path).filter((name) => !values[name]);
  for (const name of absent) {
    if (name === 'app_id') values[name] = await needAppId(ctx);
    else if (name === 'project_id') values[name] = await needProject(ctx);
    else throw usageError(`{${name}} is not known: put it into the path, or -f ${name}=…`);
  }
  return values;
}
