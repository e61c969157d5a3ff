import { type ContractTable, isPaged, isStream, type TableOperation } from '../contract/table.js';
import { describeForPrograms, describeOperation, sectionsOf } from '../contract/describe.js';
import { embeddedContract, serverContract } from '../contract/embedded.js';
import { findOperation, fillPath } from '../contract/find.js';
import { type Context } from '../core/context.js';
import { CliError, usageError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { flag, listFlag, type CommandSpec, type Options } from '../core/program.js';
import { nearestText } from '../core/suggest.js';
import { buildRequest, fillPlaceholders, requestWithoutContract } from '../contract/request.js';
import { sendRequest } from '../contract/send.js';

const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];

/** `nebo api`: any operation of the contract, checked before anything is sent. */
export const api: CommandSpec = {
  usage: 'api [ARGS...]',
  summary: 'call any operation of the API; arguments are checked against the contract first',
  example: `nebo api /apps --paginate --jq '.[].name'
nebo api --list                                      sections of the contract
nebo api --list apps                                 operations of one section
nebo api --describe POST /floating-ips               parameters, body, answers
nebo api -X POST /floating-ips -f name=web -f cluster_id=ID
nebo api -X PATCH /apps/{app_id} -F replica_count=2 -F vpc_id=null
nebo api -X POST /apps/ID/deployments --input src.tgz
echo '{"name":"x"}' | nebo api -X POST /projects/ID/apps --input - --dry-run`,
  notes: `A path or an operation id. The method is GET unless -X says otherwise. {app_id} and {project_id} are filled in from
flags, environment and link. The contract says whether a field is path, query or body.`,
  flags: [
    flag('-X, --method <METHOD>', methods.join(', ')),
    listFlag('-f, --field <NAME=TEXT>', 'a field, as text'),
    listFlag(
      '-F, --typed-field <NAME=VALUE>',
      'a field: true, false, null, number, @file, JSON; name[]=a for lists',
    ),
    flag('--input <FILE>', 'the body, - for stdin'),
    flag('-i, --include', 'print status and headers too'),
    flag('--paginate', 'all pages as one array'),
    flag('--dry-run', 'show the request, and the same as curl; send nothing'),
    flag('--no-check', 'send what the contract does not know, for a newer server'),
    flag('--list [SECTION]', 'sections, or the operations of one'),
    flag('--describe', 'what the contract says about an operation'),
    flag('--server-contract', "check against the server's own contract instead of the embedded one"),
  ],
  run: (ctx, [words], options) => run(ctx, (words ?? []) as readonly string[], options),
};

async function run(ctx: Context, words: readonly string[], options: Options): Promise<void> {
  const table = options['serverContract']
    ? await serverContract((await ctx.account()).apiUrl, ctx.io.env, ctx.signal)
    : embeddedContract();
  if (options['list'] !== undefined)
    return list(ctx, table, options['list'] === true ? words[0] : String(options['list']));

  const [method, target] = methodAndTarget(words, options['method'] as string | undefined);
  const [path, search] = target.split('?', 2) as [string, string?];
  const found = findOperation(table, method, path);
  const check = options['check'] !== false;
  if (options['describe']) {
    if (found.kind !== 'operation') throw noOperation(method ?? 'GET', path, found);
    if (ctx.print.structured) return ctx.print.value(describeForPrograms(table, found.operation));
    return ctx.print.text(describeOperation(table, found.operation));
  }
  if (found.kind !== 'operation') {
    if (check) throw noOperation(method ?? 'GET', path, found);
    if (options['paginate']) throw usageError('--paginate needs a list that the contract knows');
    return sendRequest(
      ctx,
      await requestWithoutContract(ctx, method ?? 'GET', path, search, options),
      options,
      { stream: false },
    );
  }

  const { operation } = found;
  if (options['paginate'] && !isPaged(operation))
    throw usageError(
      `${operation.method} ${operation.path} is not a list in pages: --paginate cannot be used`,
    );
  const request = await buildRequest(ctx, table, operation, found.values, search, options, check);
  const values = await fillPlaceholders(ctx, operation, request.pathValues);
  await sendRequest(ctx, { ...request, path: fillPath(operation.path, values) }, options, {
    stream: isStream(operation),
  });
}

/** `POST /apps`, `/apps`, or an operation id; `-X` and the first word say the same thing. */
function methodAndTarget(words: readonly string[], flagged: string | undefined): [string | null, string] {
  const rest = [...words];
  let method = flagged?.toUpperCase() ?? null;
  if (rest.length > 1 && methods.includes(rest[0]!.toUpperCase())) {
    const first = rest.shift()!.toUpperCase();
    if (method !== null && method !== first) throw usageError(`-X says ${method}, the first word ${first}`);
    method = first;
  }
  if (method !== null && !methods.includes(method))
    throw usageError(`-X is one of ${methods.join(', ')}, not "${flagged}"`);
  if (rest.length === 0)
    throw usageError('A path or an operation id is needed: nebo api /apps', {
      hint: 'nebo api --list shows what there is',
    });
  if (rest.length > 1)
    throw usageError(`One path, please; "${rest[1]}" is too much`, { hint: 'Fields are -f name=value' });
  return [method, rest[0]!];
}

async function list(ctx: Context, table: ContractTable, section: string | undefined): Promise<void> {
  const sections = sectionsOf(table);
  if (section === undefined)
    return ctx.print.list(sections, [{ key: 'section' }, { key: 'operations' }], (one) => one.section);
  const operations = table.operations.filter((operation) => operation.section === section);
  if (operations.length === 0) {
    const names = sections.map((one) => one.section);
    const near = nearestText(section, names);
    throw usageError(`The contract has no section "${section}"`, {
      lines: [...(near ? [near] : []), `Sections: ${names.join(', ')}`],
      extra: { choices: names },
    });
  }
  const rows = operations.map(({ id, method, path, summary, permissions }) => ({
    method,
    path,
    summary,
    permission: permissions.join(', '),
    operation_id: id,
  }));
  const columns = [
    { key: 'method' },
    { key: 'path' },
    { key: 'summary' },
    { key: 'permission' },
    { key: 'operation_id', wide: true },
  ];
  await ctx.print.list(rows, columns, (one) => one.operation_id);
}

/** A typo's 404 looks like an absent resource, so what the contract lacks is never sent. */
function noOperation(
  method: string,
  path: string,
  found:
    | { kind: 'method'; methods: string[]; similar: TableOperation[] }
    | { kind: 'nothing'; similar: TableOperation[] },
): CliError {
  const shown = found.similar.map((one) => `${one.method} ${one.path}  ${one.summary}`);
  const others = found.kind === 'method' ? found.methods : [];
  return new CliError(
    exitCodes.usage,
    'unknown_operation',
    `the contract has no such operation: ${method} ${path}`,
    {
      lines: [
        ...(others.length > 0 ? [`The path exists with ${others.join(', ')}: use -X ${others[0]}`] : []),
        ...(shown.length > 0 ? ['Similar:', ...shown.map((line) => `  ${line}`)] : []),
      ],
      hint: 'nebo api --list, or --no-check if the server is newer than this nebo',
      extra: {
        methods: others,
        similar: found.similar.map(({ id, method: verb, path: template }) => ({
          operation_id: id,
          method: verb,
          path: template,
        })),
      },
    },
  );
}
