import { Argument, Command, CommanderError, Option } from 'commander';
import { type Context } from './context.js';
import { usageError } from './errors.js';
import { outputFormats, type Flags } from './settings.js';
import { nearest } from './suggest.js';

/** The flags of one command, beside the global ones. */
export type Options = Record<string, unknown>;

/** One command; the table of these is the command line. */
export interface CommandSpec {
  /** `show [APP]`, as commander writes arguments. */
  usage: string;
  alias?: string;
  summary: string;
  /** A real call, shown first in the help. */
  example: string;
  /** Further text behind the flags. */
  notes?: string;
  flags?: readonly Option[];
  /** It starts work and waits: `--timeout` counts from the start of the wait. */
  waits?: boolean;
  run(
    ctx: Context,
    args: readonly (string | readonly string[] | undefined)[],
    options: Options,
  ): Promise<void>;
}

/** A kind with its verbs: `nebo app list`. */
export interface GroupSpec {
  name: string;
  summary: string;
  /** First line of its help; that of its first command otherwise. */
  example?: string;
  commands: readonly CommandSpec[];
}

/** What runs a command: makes the context and ends it. */
export type Runner = (
  spec: CommandSpec,
  flags: Flags,
  args: readonly (string | readonly string[] | undefined)[],
  options: Options,
) => Promise<void>;

/** A flag of a command. */
export const flag = (flags: string, about: string): Option => new Option(flags, about);
/** A flag that may be given several times. */
export const listFlag = (flags: string, about: string): Option =>
  new Option(flags, about).argParser((value: string, before: string[] | undefined) => [
    ...(before ?? []),
    value,
  ]);

function globalOptions(program: Command): void {
  program
    .addOption(
      new Option('-o, --output <FORMAT>', `${outputFormats.join(', ')} (NEBO_OUTPUT)`).argParser(String),
    )
    .option('--columns <A,B>', 'columns of a table; any field of the record')
    .option('--jq <EXPR>', 'filter the JSON with a jq expression')
    .option('--no-header', 'no titles over a table')
    .option('-q, --quiet', 'no notices and no progress on stderr')
    .option('--yes', 'answer questions with yes')
    .option('--no-input', 'never ask (NEBO_NO_INPUT)')
    .option('--profile <NAME>', 'profile of the configuration (NEBO_PROFILE)')
    .option('--project <NAME|ID>', 'project (NEBO_PROJECT)')
    .option('--app <NAME|ID>', 'app (NEBO_APP)')
    .option('--api-url <URL>', 'address of the API (NEBO_API_URL)')
    .option('--timeout <TIME>', 'end a wait after 90s, 5m, 1h; the work goes on (NEBO_TIMEOUT)')
    .option('--no-color', 'no colour (NO_COLOR, FORCE_COLOR)')
    .option('--debug', 'print every request, the key masked (NEBO_DEBUG)');
}

/**
 * Builds the program out of its commands. Nothing is printed or exited by commander itself.
 * @param argv the verbs of a kind that is not named here are left out: a hundred commands take milliseconds to build
 */
export function buildProgram(
  groups: readonly GroupSpec[],
  single: readonly CommandSpec[],
  run: Runner,
  argv: readonly string[],
): Command {
  const program = new Command('nebo');
  quietly(program);
  program
    .description('Nebo from a terminal or a CI job: apps, machines, networks and everything else of the API.')
    .helpOption('-h, --help', 'help')
    .helpCommand(false);
  globalOptions(program);
  program.addHelpText('before', 'Example:\n  nebo deploy ./site --project web\n');
  program.addHelpText(
    'after',
    '\nMore: nebo help exit-codes · nebo help environment · nebo help output · nebo api --list',
  );
  for (const spec of single) addCommand(program, spec, run);
  for (const group of groups) {
    const parent = program.command(group.name).description(group.summary);
    quietly(parent);
    parent.helpOption('-h, --help', 'help').helpCommand(false);
    parent.addHelpText('before', `Example:\n  ${group.example ?? group.commands[0]!.example}\n`);
    if (argv.includes(group.name)) for (const spec of group.commands) addCommand(parent, spec, run);
  }
  return program;
}

function addCommand(parent: Command, spec: CommandSpec, run: Runner): void {
  const [name, ...words] = spec.usage.split(' ');
  const command = parent.command(name!).description(spec.summary);
  quietly(command);
  for (const word of words) command.addArgument(new Argument(word));
  if (spec.alias) command.alias(spec.alias);
  for (const option of spec.flags ?? []) command.addOption(option);
  command.helpOption('-h, --help', 'help');
  command.addHelpText(
    'before',
    `Example:\n${spec.example
      .split('\n')
      .map((line) => `  ${line}`)
      .join('\n')}\n`,
  );
  command.addHelpText('after', `${spec.notes ? `\n${spec.notes}\n` : ''}\nGlobal flags: nebo --help`);
  command.action(async (...given: unknown[]) => {
    // commander hands over the arguments, then its options, then the command.
    const args = given.slice(0, -2) as (string | readonly string[] | undefined)[];
    // Not merged: `--input FILE` of "nebo api" and the global `--no-input` have one name inside commander.
    let root = command;
    while (root.parent) root = root.parent;
    await run(spec, root.opts<Flags>(), args, command.opts<Options>());
  });
}

function quietly(command: Command): void {
  command
    .exitOverride()
    .configureOutput({ writeErr: () => undefined })
    .showSuggestionAfterError(false);
}

/** The command that words lead to, as far as they do. */
export function commandAt(
  program: Command,
  words: readonly string[],
): { command: Command; rest: readonly string[] } {
  let command = program;
  for (const [index, word] of words.entries()) {
    const next = command.commands.find((one) => one.name() === word || one.aliases().includes(word));
    if (!next) return { command, rest: words.slice(index) };
    command = next;
  }
  return { command, rest: [] };
}

/** The words that are neither a flag nor the value of a global one. */
function wordsOf(program: Command, argv: readonly string[]): string[] {
  return argv.filter((word, index) => {
    if (word.startsWith('-')) return false;
    const before = index === 0 ? undefined : argv[index - 1]!;
    return !program.options.some(
      ({ long, short, required }) => required && before !== undefined && [long, short].includes(before),
    );
  });
}

const namesOf = (command: Command): string[] =>
  command.commands.flatMap((one) => [one.name(), ...one.aliases()]);
const pathOf = (command: Command): string =>
  command.parent ? `${pathOf(command.parent)} ${command.name()}` : command.name();

/** What commander refused, as a usage error with the nearest names. @param argv the words after `nebo` */
export function refusedBy(error: CommanderError, program: Command, argv: readonly string[]): Error {
  const message = error.message.replace(/^error: /, '').split('\n')[0]!;
  const { command, rest } = commandAt(program, wordsOf(program, argv));
  const hint = `${pathOf(command)} --help`;
  if (error.code === 'commander.unknownOption') {
    const wanted = /'([^']+)'/.exec(message)?.[1] ?? '';
    const flags = [...command.options, ...program.options]
      .flatMap(({ long, short }) => [long, short])
      .filter((one) => one !== undefined);
    const near = wanted.startsWith('--')
      ? nearest(
          wanted.slice(2),
          flags.map((one) => one.replace(/^-+/, '')).filter((one) => one.length > 1),
        ).map((one) => `--${one}`)
      : [];
    return usageError(message, {
      lines: near.length > 0 ? [`Nearest: ${near.join(', ')}`] : [],
      hint,
      extra: { nearest: near },
    });
  }
  if (command.commands.length > 0) return unknownCommand(command, rest[0]);
  return usageError(message, { hint });
}

/** The error for a word that is no command. @param word undefined when it is missing */
export function unknownCommand(command: Command, word: string | undefined): Error {
  const names = namesOf(command);
  if (word === undefined) {
    return usageError(`${pathOf(command)} needs one of: ${names.join(', ')}`, {
      hint: `${pathOf(command)} --help`,
      extra: { choices: names },
    });
  }
  // A verb typed without its kind, such as "nebo list", is near nothing: then all names are shown.
  const near = nearest(word, names);
  return usageError(`There is no command "${pathOf(command)} ${word}"`, {
    lines: [near.length > 0 ? `Nearest: ${near.join(', ')}` : `Commands: ${names.join(', ')}`],
    hint: `${pathOf(command)} --help`,
    extra: { nearest: near },
  });
}
