import { CommanderError } from 'commander';
import { groups, singles } from '../commands/index.js';
import { helpTopics } from '../commands/topics.js';
import { page } from '../output/pager.js';
import { Context } from './context.js';
import { asCliError, usageError } from './errors.js';
import { exitCodes, type ExitCode } from './exit-codes.js';
import { type Io } from './io.js';
import { buildProgram, commandAt, refusedBy, unknownCommand, type Runner } from './program.js';
import { Talk } from './talk.js';

/**
 * Runs one command line and says with which code to exit. Nothing is thrown.
 * @param argv the words after `nebo`
 * @param interrupt aborted with a CliError on Ctrl-C
 */
export async function runNebo(argv: readonly string[], io: Io, interrupt: AbortSignal): Promise<ExitCode> {
  let ctx: Context | undefined;
  const run: Runner = async (spec, flags, args, options) => {
    ctx = new Context(io, flags, interrupt, spec.waits);
    if (flags.jq !== undefined) await (await import('../output/jq.js')).checkFilter(flags.jq);
    await spec.run(ctx, args, options);
  };
  const program = buildProgram(groups, singles, run, argv);
  let help = '';
  for (const command of [program, ...program.commands, ...program.commands.flatMap((one) => one.commands)])
    command.configureOutput({ writeOut: (text) => (help += text), writeErr: () => undefined });
  const showHelp = async () => {
    if (!(await page(help, io))) io.stdout.write(help);
  };
  try {
    if (argv.length === 0) {
      program.outputHelp();
      await showHelp();
      return exitCodes.done;
    }
    if (argv[0] === 'help') {
      const words = argv.slice(1).filter((word) => !word.startsWith('-'));
      const topic = words.length === 1 ? helpTopics[words[0]!] : undefined;
      const { command, rest } = commandAt(program, words);
      if (topic) help = topic();
      else if (rest.length > 0) throw unknownTopic(program, command, rest[0]!);
      else command.outputHelp();
      await showHelp();
      return exitCodes.done;
    }
    await program.parseAsync([...argv], { from: 'user' });
    return exitCodes.done;
  } catch (thrown) {
    if (
      thrown instanceof CommanderError &&
      (thrown.code === 'commander.helpDisplayed' || thrown.exitCode === 0)
    ) {
      await showHelp();
      return exitCodes.done;
    }
    const error = asCliError(thrown instanceof CommanderError ? refusedBy(thrown, program, argv) : thrown);
    (ctx?.talk ?? earlyTalk(argv, io)).error(error);
    return error.exit;
  } finally {
    ctx?.close();
  }
}

function unknownTopic(
  program: Parameters<typeof unknownCommand>[0],
  command: typeof program,
  word: string,
): Error {
  if (command !== program) return unknownCommand(command, word);
  const topics = Object.keys(helpTopics);
  return usageError(`There is no help on "${word}"`, {
    lines: [`Topics: ${topics.join(', ')}, and every command`],
    hint: 'nebo --help',
  });
}

/** For errors before the flags could be read: the format is looked up by hand. */
function earlyTalk(argv: readonly string[], io: Io): Talk {
  const index = argv.findIndex((word) => /^(-o|--output)/.test(word));
  const said =
    index < 0
      ? io.env['NEBO_OUTPUT']
      : (/^(?:-o|--output)=?(.+)$/.exec(argv[index]!)?.[1] ?? argv[index + 1]);
  const jsonErrors = said === 'json' || said === 'yaml';
  const color =
    !jsonErrors &&
    !io.env['NO_COLOR'] &&
    !argv.includes('--no-color') &&
    io.stderr.isTTY === true &&
    io.env['TERM'] !== 'dumb';
  return new Talk(io, { quiet: false, debug: false, color, jsonErrors });
}
