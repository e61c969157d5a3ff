/** `npm run -s admin -- <command>`: the operator's commands, against the running installation. */
import { createReadStream, existsSync } from 'node:fs';
import { Readable } from 'node:stream';
import { parseArgs } from 'node:util';
import { Config, ConfigError } from '@nebo/service-kit/config';
import {
  type AdminCommand,
  adminCommands,
  type AdminRequest,
  type AdminUpload,
  type LocalCommand,
  localCommands,
} from './admin-commands.js';
import { reachableHost } from './before-start.js';
import { readCredentials } from './credentials.js';
import { operatorTokenOf } from './operator-token.js';

function usage(): string {
  const rows = Object.entries({ ...adminCommands, ...localCommands }).map(
    ([name, command]) => `  ${`${name} ${command.usage}`.trimEnd()}\n      ${command.help}`,
  );
  return `npm run -s admin -- COMMAND [options] [--json]\n\n${rows.join('\n')}\n\nEach command prints one JSON object; doctor and audit print lines without --json. The installation must be running, except for\ndoctor; NEBO_HOME and NEBO_API_PORT say which one.\n`;
}

/** Wrong use: the message and exit code 2. */
class UsageError extends Error {}

function readOptions(command: AdminCommand | LocalCommand, args: string[]): Record<string, string> {
  try {
    const options = Object.fromEntries(command.options.map((name) => [name, { type: 'string' as const }]));
    const { values } = parseArgs({ args, options: { ...options, json: { type: 'boolean' } }, strict: true });
    const given: Record<string, string> = {};
    for (const [name, value] of Object.entries(values)) if (typeof value === 'string') given[name] = value;
    for (const name of command.required) if (!given[name]) throw new UsageError(`--${name} is missing`);
    return given;
  } catch (error) {
    throw error instanceof UsageError ? error : new UsageError((error as Error).message);
  }
}

/** Where the API answers, without `/v1`: by setting, else as the installation of this data folder has written it. */
function apiUrl(config: Config): string {
  const known = config.optional('NEBO_API_PORT')
    ? null
    : readCredentials(config.text('NEBO_HOME', '.nebo'))?.base_url;
  // The same variable is the address with `/v1` for `nebo`.
  return config
    .text('NEBO_API_URL', known ?? `http://${reachableHost(config)}:${config.port('NEBO_API_PORT', 4000)}`)
    .replace(/\/v1\/*$/, '');
}

async function runLocal(command: LocalCommand, args: string[]): Promise<void> {
  const given = readOptions(command, args);
  const config = new Config();
  const { result, text, ok } = await command.run(config, apiUrl(config), given).catch((error: unknown) =>
    asked(() => {
      throw error;
    }),
  );
  process.stdout.write(args.includes('--json') ? `${JSON.stringify(result)}\n` : text);
  if (!ok) process.exitCode = 1;
}

async function run(words: string[]): Promise<void> {
  const local = Object.hasOwn(localCommands, words[0] ?? '') ? localCommands[words[0]!] : undefined;
  if (local) return runLocal(local, words.slice(1));
  const name = words.slice(0, 2).join(' ');
  if (!Object.hasOwn(adminCommands, name))
    throw new UsageError(words.length === 0 ? 'a command is needed' : `there is no command "${name}"`);
  const command = adminCommands[name]!;
  const given = readOptions(command, words.slice(2));
  const config = new Config();
  const operator = new Operator(
    apiUrl(config),
    asked(() => operatorTokenOf(config)),
  );
  const uploaded = command.upload ? await operator.upload(uploadOf(command, given)) : undefined;
  const result = await operator.send(asked(() => command.request(given, uploaded)));
  process.stdout.write(`${JSON.stringify(Array.isArray(result) ? { data: result } : result)}\n`);
}

function uploadOf(command: AdminCommand, given: Record<string, string>): AdminUpload {
  return asked(() => command.upload!(given));
}

/** What a command says of its options is wrong use. */
function asked<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw error instanceof RangeError ? new UsageError(error.message) : error;
  }
}

/** The operator's door of a running installation. */
class Operator {
  constructor(
    private readonly url: string,
    private readonly token: string,
  ) {}

  send({ method, service, path, body }: AdminRequest): Promise<unknown> {
    return this.call(service, path, {
      method,
      ...(body ? { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) } : {}),
    });
  }

  /** Sends a file, or what an address answers with, as it comes. */
  async upload({ from, service, path }: AdminUpload): Promise<Record<string, unknown>> {
    const body = 'file' in from ? fileStream(from.file) : await download(from.url);
    const headers = { 'content-type': 'application/octet-stream' };
    return (await this.call(service, path, {
      method: 'POST',
      headers,
      body,
      duplex: 'half',
    })) as Record<string, unknown>;
  }

  private async call(service: string, path: string, init: RequestInit): Promise<unknown> {
    const answer = await fetch(`${this.url}/operator/v1/${service}${path}`, {
      ...init,
      headers: { ...init.headers, authorization: `Bearer ${this.token}` } as Record<string, string>,
    }).catch((error: unknown) => {
      if (init.duplex) throw new Error(`the upload to ${this.url} failed: ${causeOf(error)}`);
      throw new Error(`Nebo does not answer at ${this.url}: start it with npm start, or set NEBO_API_PORT`);
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${answer.status} ${messageOf(text)}`);
    return text === '' ? {} : (JSON.parse(text) as unknown);
  }
}

function fileStream(path: string): ReadableStream {
  if (!existsSync(path)) throw new UsageError(`${path} is not there`);
  return Readable.toWeb(createReadStream(path)) as ReadableStream;
}

/** @throws Error unless the address answers 200 with a body */
async function download(url: string): Promise<ReadableStream> {
  const answer = await fetch(url).catch((error: unknown) => {
    throw new Error(`${url}: ${causeOf(error)}`);
  });
  if (answer.status !== 200 || !answer.body) throw new Error(`${url} answers ${answer.status}`);
  return answer.body;
}

const causeOf = (error: unknown): string => {
  const { message, cause } = error as Error;
  return cause instanceof Error ? cause.message : message;
};

function messageOf(text: string): string {
  try {
    const { error } = JSON.parse(text) as { error: { code: string; message: string } };
    return `${error.code}: ${error.message}`;
  } catch {
    return text.slice(0, 300);
  }
}

// A reader that has enough (`| head`) is no error; an answer that cannot be written is one, in one line.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0);
  process.stderr.write(`admin: ${error.message}\n`);
  process.exit(1);
});
try {
  const words = process.argv.slice(2);
  if (words[0] === '--help' || words[0] === '-h' || words[0] === 'help') process.stdout.write(usage());
  else await run(words);
} catch (error) {
  const wrongUse = error instanceof UsageError || error instanceof ConfigError;
  process.stderr.write(
    `admin: ${(error as Error).message}\n${error instanceof UsageError ? `\n${usage()}` : ''}`,
  );
  process.exitCode = wrongUse ? 2 : 1;
}
