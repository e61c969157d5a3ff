import { type Context } from '../core/context.js';
import { CliError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { forTerminal } from '../core/io.js';
import { type Options } from '../core/program.js';
import { type Answer, type ApiClient, type Call } from '../http/client.js';
import { streamItems } from '../http/event-stream.js';
import { failureOf } from '../http/failures.js';
import { bodyText } from '../http/transport.js';
import { asCurl } from './curl.js';
import { type ApiRequest } from './request.js';

/** Sends a request of `nebo api` and prints the answer, or with `--dry-run` the request. */
export async function sendRequest(
  ctx: Context,
  request: ApiRequest,
  options: Options,
  kind: { stream: boolean },
): Promise<void> {
  const client = await ctx.client();
  const call: Call = {
    method: request.method,
    path: request.path,
    query: request.query,
    body: request.body ?? undefined,
    contentType: request.contentType ?? undefined,
    accept: request.accept,
  };
  if (options['dryRun']) return dryRun(ctx, client, call, request);
  const include = options['include'] === true;
  if (kind.stream) return printStream(ctx, client, call, include);
  if (options['paginate']) return paginate(ctx, client, call, include);
  const answer = await client.exchange(call);
  if (include) printHead(ctx, answer);
  if (answer.status < 200 || answer.status >= 300)
    throw failureOf(answer.status, answer.headers, answer.text);
  await printAnswer(ctx, answer.text);
}

async function dryRun(ctx: Context, client: ApiClient, call: Call, request: ApiRequest): Promise<void> {
  const url = String(client.urlOf(call));
  const headers: Record<string, string> = { authorization: 'Bearer …', accept: request.accept };
  if (request.contentType) headers['content-type'] = request.contentType;
  // Shown, since it is sent; the value is made anew for every call.
  if (request.method === 'POST') headers['idempotency-key'] = crypto.randomUUID();
  const planned = { method: request.method, url, headers, body: request.bodyText, file: request.bodyFile };
  if (ctx.print.structured) return ctx.print.value(planned);
  ctx.print.text(asCurl(planned));
}

/** One array of all pages, so that a filter sees the whole; a page size that was asked for is kept. */
async function paginate(ctx: Context, client: ApiClient, call: Call, include: boolean): Promise<void> {
  const limit = Number((call.query?.['limit'] as string[] | undefined)?.[0] ?? 200);
  let offset = Number((call.query?.['offset'] as string[] | undefined)?.[0] ?? 0);
  const all: unknown[] = [];
  for (;;) {
    const answer = await client.ok({ ...call, query: { ...call.query, limit, offset } });
    if (include && all.length === 0) printHead(ctx, answer);
    const data = pageOf(answer.text);
    if (data === null)
      throw new CliError(exitCodes.service, 'not_the_api', 'The answer is not a page: it has no "data"');
    all.push(...data);
    if (data.length < limit) break;
    offset += data.length;
  }
  await ctx.print.value(all);
}

function pageOf(text: string): unknown[] | null {
  try {
    const { data } = JSON.parse(text) as { data?: unknown };
    return Array.isArray(data) ? data : null;
  } catch {
    return null;
  }
}

async function printStream(ctx: Context, client: ApiClient, call: Call, include: boolean): Promise<void> {
  const answer = await client.open({ ...call, signal: ctx.signal });
  const head = {
    status: answer.statusCode ?? 0,
    reason: answer.statusMessage ?? '',
    headers: answer.headers,
  };
  if (include) printHead(ctx, head);
  if (head.status < 200 || head.status >= 300)
    throw failureOf(head.status, head.headers, await bodyText(answer, ctx.signal));
  const lines: string[] = [];
  try {
    for await (const item of streamItems(answer)) {
      if (item.kind === 'done') return ctx.print.structured ? await ctx.print.value(lines) : undefined;
      if (ctx.print.structured) lines.push(item.text);
      else ctx.print.line(ctx.io.stdout.isTTY ? forTerminal(item.text, true) : item.text);
    }
  } catch (error) {
    ctx.signal.throwIfAborted();
    ctx.talk.debug(`stream: ${(error as Error).message}`);
  }
  throw new CliError(
    exitCodes.service,
    'stream_cut',
    'The stream ended without "done": what was printed may be cut',
  );
}

function printHead(ctx: Context, answer: Pick<Answer, 'status' | 'reason' | 'headers'>): void {
  ctx.print.line(`HTTP/1.1 ${answer.status} ${answer.reason}`.trimEnd());
  for (const [name, value] of Object.entries(answer.headers))
    for (const one of Array.isArray(value) ? value : [value]) ctx.print.line(`${name}: ${one}`);
  ctx.print.line('');
}

async function printAnswer(ctx: Context, text: string): Promise<void> {
  if (text === '') return;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return ctx.print.text(text);
  }
  if (ctx.flags.jq !== undefined || ctx.print.format === 'yaml' || ctx.io.stdout.isTTY)
    return ctx.print.value(value);
  // For a program: the bytes as they came.
  ctx.print.text(text.endsWith('\n') ? text : `${text}\n`);
}
