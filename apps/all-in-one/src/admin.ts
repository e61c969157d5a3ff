/** `npm run -s admin -- <command>`: the operator's commands, against the running installation. */
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { Config, ConfigError } from '@nebo/service-kit/config';
import { MasterKey } from '@nebo/service-kit/secrets';
import { type AdminCommand, adminCommands, type LocalCommand, localCommands } from './admin-commands.js';

function usage(): string {
  const rows = Object.entries({ ...adminCommands, ...localCommands }).map(
    ([name, command]) => `  ${`${name} ${command.usage}`.trimEnd()}\n      ${command.help}`,
  );
  return `npm run -s admin -- COMMAND [options] [--json]\n\n${rows.join('\n')}\n\nEach command prints one JSON object; doctor prints lines without --json. The installation must be running, except for\ndoctor; NEBO_HOME and NEBO_API_PORT say which one.\n`;
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

const apiUrl = (config: Config) =>
  config.text('NEBO_API_URL', `http://127.0.0.1:${config.port('NEBO_API_PORT', 4000)}`);

async function runLocal(command: LocalCommand, args: string[]): Promise<void> {
  readOptions(command, args);
  const config = new Config();
  const { result, text, ok } = await command.run(config, apiUrl(config));
  process.stdout.write(args.includes('--json') ? `${JSON.stringify(result)}\n` : text);
  if (!ok) process.exitCode = 1;
}

async function run(words: string[]): Promise<void> {
  const local = Object.hasOwn(localCommands, words[0] ?? '') ? localCommands[words[0]!] : undefined;
  if (local) return runLocal(local, words.slice(1));
  const name = Object.keys(adminCommands).find((candidate) =>
    `${words.slice(0, 2).join(' ')}`.startsWith(candidate),
  );
  if (!name)
    throw new UsageError(
      words.length === 0 ? 'a command is needed' : `there is no command "${words.slice(0, 2).join(' ')}"`,
    );
  const command = adminCommands[name]!;
  const given = readOptions(command, words.slice(name.split(' ').length));
  const config = new Config();
  const home = resolve(config.text('NEBO_HOME', '.nebo'));
  const keyFile = resolve(config.text('NEBO_MASTER_KEY_FILE', `${home}/master.key`));
  if (!existsSync(keyFile))
    throw new UsageError(`${keyFile} is not there: start Nebo first (npm start), or set NEBO_HOME`);
  const url = apiUrl(config);
  const token = `nebo_operator_${MasterKey.fromFile(keyFile).derive('operator').toString('base64url')}`;
  const { method, service, path, body } = command.request(given);
  const answer = await fetch(`${url}/operator/v1/${service}${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, ...(body ? { 'content-type': 'application/json' } : {}) },
    ...(body ? { body: JSON.stringify(body) } : {}),
  }).catch(() => {
    throw new Error(`Nebo does not answer at ${url}: start it with npm start, or set NEBO_API_PORT`);
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${answer.status} ${messageOf(text)}`);
  const result = text === '' ? {} : (JSON.parse(text) as unknown);
  process.stdout.write(`${JSON.stringify(Array.isArray(result) ? { data: result } : result)}\n`);
}

function messageOf(text: string): string {
  try {
    const { error } = JSON.parse(text) as { error: { code: string; message: string } };
    return `${error.code}: ${error.message}`;
  } catch {
    return text.slice(0, 300);
  }
}

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
