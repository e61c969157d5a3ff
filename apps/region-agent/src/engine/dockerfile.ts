import { BuildFailure } from '../builds/tree.js';

/** What the agent must know of a Dockerfile before it hands it to an engine. */
export interface Dockerfile {
  /** Names that it declares with ARG: no other build arguments are handed over. */
  args: ReadonlySet<string>;
  /** Images that the engine would pull: of FROM, and of COPY --from that names no stage. */
  images: string[];
}

interface Instruction {
  line: number;
  /** Upper case. */
  word: string;
  rest: string;
}

/**
 * How an engine puts continued lines together. Which end means one is said at the top of the file; newer engines leave one that stands
 * behind another as it is.
 */
interface Reading {
  escape: '\\' | '`';
  isNew: boolean;
}

const readings = (['\\', '`'] as const).flatMap((escape): Reading[] => [
  { escape, isNew: false },
  { escape, isNew: true },
]);

/** What engines, which are written in Go, take for white space: not what JavaScript does. */
const space = '\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';
const leading = new RegExp(`^[${space}]+`);
/** Where words may end: bytes that are no UTF-8 are white space to some engines too. */
const gaps = new RegExp(`[${space}\\ufffd]+`);

const withFlags: ReadonlySet<string> = new Set(['FROM', 'COPY', 'ADD', 'RUN']);

/** Addresses, and repositories, which newer engines fetch too. */
const address = /^([a-z][a-z0-9+.-]*:\/\/|git@)/i;
/** What an address may begin with, for words of which the rest is in a variable. */
const beginnings = ['https://', 'http://', 'git://', 'ssh://', 'git@'];

/**
 * Reads a Dockerfile and refuses what an engine would do outside of the build's own containers: fetch addresses itself (ADD), give a
 * step the host's network or rights that the build must not have.
 * @param values of build arguments, which win over the defaults in the file
 * @throws BuildFailure naming the line
 */
export function readDockerfile(text: string, values: ReadonlyMap<string, string>): Dockerfile {
  // However the engine reads it, nothing must hide behind another instruction.
  for (const reading of readings)
    for (const instruction of instructions(text, reading)) checkInstruction(instruction);
  const usual = readings.filter(({ escape }) => escape === '\\' || mayChooseEscape.test(text));
  const files = usual.map((reading) => readWith(text, reading, values));
  return {
    args: new Set(files.flatMap(({ args }) => [...args])),
    images: [...new Set(files.flatMap(({ images }) => images))],
  };
}

/** Whether it stands where engines look for it is not asked. */
const mayChooseEscape = /#\s*escape\s*=\s*`/i;
/** Behind a name that ends like a continued line, a heredoc would go on for us and not for an engine. */
const oddHeredoc = /(?:^|\s)\d*<<-?[^<\s]*[\\`]\S/;

function readWith(text: string, reading: Reading, values: ReadonlyMap<string, string>): Dockerfile {
  const args = new Set<string>();
  const globals = new Map<string, string>();
  const stages = new Set<string>();
  const images: string[] = [];
  let inStage = false;
  let stage = 0;
  const use = (image: string) => {
    const known = stages.has(image.toLowerCase()) || (/^\d+$/.test(image) && Number(image) < stage);
    if (!known && image !== 'scratch') images.push(image);
  };
  for (const { word, rest, line } of instructions(text, reading)) {
    if (word === 'ARG') {
      for (const part of wordsOf(rest)) {
        const [name = '', ...preset] = part.split('=');
        args.add(name);
        const value = values.get(name) ?? (preset.length > 0 ? preset.join('=') : undefined);
        if (!inStage && value !== undefined) globals.set(name, expanded(value, globals));
      }
    } else if (word === 'FROM') {
      needValues(flagsOf(rest), line);
      const [image = '', as, name] = wordsOf(rest).filter((part) => !part.startsWith('--'));
      use(substituted(image, globals, line));
      if (as?.toLowerCase() === 'as' && name) stages.add(name.toLowerCase());
      inStage = true;
      stage += 1;
    }
    if (word === 'COPY') {
      const from = flagsOf(rest).filter((flag) => /^--from\b/i.test(flag));
      needValues(from, line);
      for (const flag of from) use(flag.slice('--from='.length));
    }
  }
  return { args, images };
}

/** Some engines take the next word for the value of a flag that has none. @throws BuildFailure */
function needValues(flags: readonly string[], line: number): void {
  const bare = flags.find((flag) => !/^--[a-z-]+=./i.test(flag));
  if (bare !== undefined)
    throw new BuildFailure(`line ${line} of the Dockerfile: ${bare} needs a value behind "=".`);
}

/**
 * Instructions that an image has whoever builds on it do (ONBUILD): they are part of the build as much as the file's own.
 * @throws BuildFailure naming the image
 */
export function checkTriggers(image: string, triggers: readonly string[]): void {
  for (const trigger of triggers) {
    for (const reading of readings)
      for (const instruction of instructions(trigger, reading))
        checkInstruction(instruction, `ONBUILD of the image ${image}`);
  }
}

function checkInstruction({ line, word, rest }: Instruction, where = `line ${line} of the Dockerfile`): void {
  if (word === 'ONBUILD') {
    const inner = instructionOf({ line, text: rest });
    return inner ? checkInstruction(inner, where) : undefined;
  }
  if (!withFlags.has(word)) return;
  if (oddHeredoc.test(rest))
    throw new BuildFailure(`${where}: a name behind << must not hold a backslash or a backtick.`);
  if (word === 'ADD' && sourcesOf(rest).some(isFetched))
    throw new BuildFailure(
      `${where}: ADD of an address is not done here, the engine would fetch it past the region's guard. ` +
        'Put the file into the source, or fetch it in a RUN. A source must not begin with a variable either.',
    );
  const flags = flagsOf(rest);
  // Some engines take single bytes of a letter for white space.
  for (const flag of flags)
    if (!/^[!-~]+$/.test(flag))
      throw new BuildFailure(`${where}: ${word} ${JSON.stringify(flag)} holds a character that no flag has.`);
  if (word !== 'RUN') return;
  for (const flag of flags) {
    // Podman's caches are one for all that it builds, and folders of the host have been reached by its other kinds.
    if (/^--mount/i.test(flag))
      throw new BuildFailure(
        `${where}: RUN ${flag} is not done here: what an engine keeps for it, it keeps for all that it builds. Leave --mount out.`,
      );
    if (/^--(security|device|privileged)/i.test(flag) || /^--network(?!=(none|default)$)/i.test(flag))
      throw new BuildFailure(`${where}: RUN ${flag} is not allowed here.`);
  }
}

/** All words of ADD but the last, as the engine reads them: without quotes and escapes, of which JSON has its own. */
function sourcesOf(rest: string): string[] {
  const decoded = rest.replace(/\\u([0-9a-f]{4})/gi, (_all, code: string) =>
    String.fromCharCode(Number.parseInt(code, 16)),
  );
  const plain = unquoted(decoded);
  const list = plain.replace(/^(--\S+\s+)*/, '');
  const words = list.startsWith('[') ? list.replace(/^\[|\]\s*$/g, '').split(',') : wordsOf(list);
  return words.slice(0, -1).map((word) => word.trim());
}

/** Without what an engine takes out of words, and with plain spaces. */
const unquoted = (text: string): string => wordsOf(text.replace(/["'\\`]/g, '')).join(' ');

function isFetched(source: string): boolean {
  const dollar = source.indexOf('$');
  const known = dollar < 0 ? source : source.slice(0, dollar);
  if (address.test(known)) return true;
  return dollar >= 0 && beginnings.some((beginning) => beginning.startsWith(known.toLowerCase()));
}

/** Instructions with continued lines put together, comments and empty lines left out. */
function instructions(text: string, { escape, isNew }: Reading): Instruction[] {
  const end = new RegExp(`${isNew ? `(?<!\\${escape})` : ''}\\${escape}[ \\t]*$`);
  const found: Instruction[] = [];
  let open = null as { line: number; text: string } | null;
  const close = () => {
    const instruction = open && instructionOf(open);
    if (instruction) found.push(instruction);
    open = null;
  };
  for (const [index, raw] of text
    .replace(/^\ufeff/, '')
    .split(/\r?\n/)
    .entries()) {
    const bare = raw.replace(leading, '');
    if (bare === '' || bare.startsWith('#')) continue;
    const goesOn = end.test(raw);
    open = {
      line: open?.line ?? index + 1,
      text: (open?.text ?? '') + (goesOn ? raw.replace(end, '') : raw),
    };
    if (!goesOn) close();
  }
  close();
  return found;
}

/** @returns null where nothing stands */
function instructionOf({ line, text }: { line: number; text: string }): Instruction | null {
  const [, word = '', rest = ''] = /^([^\t\v\f\r ]+)([^]*)$/.exec(text.replace(leading, '')) ?? [];
  return word === '' ? null : { line, word: word.toUpperCase(), rest: rest.replace(leading, '') };
}

const wordsOf = (text: string): string[] => text.split(gaps).filter((word) => word !== '');

/** What stands before an instruction's own words; quotes and backslashes in it mean nothing to an engine. */
function flagsOf(rest: string): string[] {
  const words = wordsOf(unquoted(rest));
  const end = words.findIndex((word) => !word.startsWith('--'));
  return end < 0 ? words : words.slice(0, end);
}

/** `$NAME`, `${NAME}` and `${NAME:-value}` as FROM knows them. @throws BuildFailure for anything else */
function substituted(text: string, values: ReadonlyMap<string, string>, line: number): string {
  const plain = expanded(text, values);
  if (plain === '' || plain.includes('$'))
    throw new BuildFailure(
      `line ${line} of the Dockerfile: which image "${text}" means cannot be known. Give the ARG before the first FROM a value.`,
    );
  return plain;
}

const expanded = (text: string, values: ReadonlyMap<string, string>): string =>
  text
    .replace(/["']/g, '')
    .replace(
      /\$(?:\{(\w+)(?::?-([^}$]*))?\}|(\w+))/g,
      (_all, braced: string | undefined, preset: string | undefined, bare: string | undefined) =>
        values.get(braced ?? bare ?? '') ?? preset ?? '',
    );
