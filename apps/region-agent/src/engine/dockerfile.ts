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
  // Which of the two ends a continued line is said at the top; whichever the engine takes, nothing must hide behind it.
  for (const escape of ['\\', '`'] as const)
    for (const instruction of instructions(text, escape)) checkInstruction(instruction);
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
  const escape = /^#\s*escape\s*=\s*`/i.test(text) ? '`' : '\\';
  for (const { word, rest, line } of instructions(text, escape)) {
    if (word === 'ARG') {
      for (const part of wordsOf(rest)) {
        const [name = '', ...preset] = part.split('=');
        args.add(name);
        const value = values.get(name) ?? (preset.length > 0 ? preset.join('=') : undefined);
        if (!inStage && value !== undefined) globals.set(name, expanded(value, globals));
      }
    } else if (word === 'FROM') {
      const [image = '', as, name] = wordsOf(rest).filter((part) => !part.startsWith('--'));
      use(substituted(image, globals, line));
      if (as?.toLowerCase() === 'as' && name) stages.add(name.toLowerCase());
      inStage = true;
      stage += 1;
    }
    if (word === 'COPY')
      for (const flag of flagsOf(rest)) {
        const [, from] = /^--from=(.+)$/i.exec(flag) ?? [];
        if (from) use(from);
      }
  }
  return { args, images: [...new Set(images)] };
}

/**
 * Instructions that an image has whoever builds on it do (ONBUILD): they are part of the build as much as the file's own.
 * @throws BuildFailure naming the image
 */
export function checkTriggers(image: string, triggers: readonly string[]): void {
  for (const trigger of triggers) {
    const [instruction] = instructions(trigger, '\\');
    if (instruction) checkInstruction(instruction, `ONBUILD of the image ${image}`);
  }
}

function checkInstruction({ line, word, rest }: Instruction, where = `line ${line} of the Dockerfile`): void {
  if (word === 'ONBUILD') {
    const [inner] = instructions(rest, '\\');
    return inner ? checkInstruction(inner, where) : undefined;
  }
  if (word === 'ADD' && sourcesOf(rest).some(isFetched))
    throw new BuildFailure(
      `${where}: ADD of an address is not done here, the engine would fetch it past the region's guard. ` +
        'Put the file into the source, or fetch it in a RUN. A source must not begin with a variable either.',
    );
  if (word !== 'RUN') return;
  for (const flag of flagsOf(rest)) {
    // Podman's caches are one for all that it builds, and folders of the host have been reached by its other kinds.
    if (/^--mount/i.test(flag))
      throw new BuildFailure(
        `${where}: RUN ${flag} is not done here: what an engine keeps for it, it keeps for all that it builds. Leave --mount out.`,
      );
    if (/^--(security|device|privileged)/i.test(flag) || /^--network=(?!none$|default$)/i.test(flag))
      throw new BuildFailure(`${where}: RUN ${flag} is not allowed here.`);
  }
}

/** All words of ADD but the last, as the engine reads them: without quotes and escapes. */
function sourcesOf(rest: string): string[] {
  const plain = rest.replace(/["'\\`]/g, '').trim();
  const list = plain.replace(/^(--\S+\s+)*/, '');
  const words = list.startsWith('[') ? list.replace(/^\[|\]\s*$/g, '').split(',') : wordsOf(list);
  return words.slice(0, -1).map((word) => word.trim());
}

function isFetched(source: string): boolean {
  const dollar = source.indexOf('$');
  const known = dollar < 0 ? source : source.slice(0, dollar);
  if (address.test(known)) return true;
  return dollar >= 0 && beginnings.some((beginning) => beginning.startsWith(known.toLowerCase()));
}

/** Instructions with continued lines put together, comments and empty lines left out. */
function instructions(text: string, escape: '\\' | '`'): Instruction[] {
  const found: Instruction[] = [];
  let open = null as { line: number; text: string } | null;
  for (const [index, raw] of text
    .replace(/^\ufeff/, '')
    .split(/\r?\n/)
    .entries()) {
    if (/^\s*#/.test(raw) || raw.trim() === '') continue;
    const line = raw.trimEnd();
    const goesOn = line.endsWith(escape);
    const part = goesOn ? line.slice(0, -1) : raw;
    open = { line: open?.line ?? index + 1, text: (open?.text ?? '') + part };
    if (goesOn) continue;
    add(found, open);
    open = null;
  }
  if (open) add(found, open);
  return found;
}

function add(found: Instruction[], { line, text }: { line: number; text: string }): void {
  const [, word = '', rest = ''] = /^\s*(\S+)\s*([^]*)$/.exec(text) ?? [];
  if (word !== '') found.push({ line, word: word.toUpperCase(), rest: rest.trim() });
}

const wordsOf = (text: string): string[] => text.split(/\s+/).filter((word) => word !== '');

/** What stands before an instruction's own words. */
function flagsOf(rest: string): string[] {
  const words = wordsOf(rest);
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
