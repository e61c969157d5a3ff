import { type Key, parse, type Token, tokensToRegexp } from 'path-to-regexp';
import { RE2JS } from 're2js';
import { isSafePattern } from 'redos-detector';
import type { CompiledPattern } from './compiled.js';

/** Name of a group that has none. */
export const unnamed = null;

/** What a source pattern is made into. */
export interface SourcePattern {
  pattern: CompiledPattern;
  /** Names of the groups, in order. */
  names: (string | null)[];
}

/** What is left for the patterns of a file. */
export interface CheckTime {
  /** For checking them, milliseconds: whoever builds it has others to build for. */
  leftMs: number;
  /** Steps of all of them together: each costs some hundred bytes at every edge, and time there before the first request. */
  leftSteps: number;
}

/** Steps of one pattern at most; beyond, it could not be tried at paths of a usual length either (`matcher.ts`). */
const mostSteps = 20_000;

/** So long may a pattern be, characters. */
export const longestPattern = 4_096;

/**
 * A `source`: `:name` one segment, `:name*` any number, `:name+` at least one, `:name(\\d+)` by a regular expression, `(.*)`
 * a group without a name. Strict and case-sensitive.
 * @throws Error with a sentence for the author
 */
export function sourcePattern(source: string, time: CheckTime): SourcePattern {
  if (!source.startsWith('/')) throw new Error(`"${source}" must begin with /`);
  if (source.length > longestPattern) throw new Error(`a pattern may have ${longestPattern} characters`);
  const keys: Key[] = [];
  let regex: string;
  let tokens: Token[];
  try {
    tokens = parse(source, { delimiter: '/' }).map(plainToken);
    regex = tokensToRegexp(tokens, keys, { strict: true, sensitive: true, delimiter: '/' }).source;
  } catch (error) {
    throw new Error(`"${source}" is not a pattern: ${(error as Error).message}`, { cause: error });
  }
  const engine = isPlain(tokens) ? { regex, engine: 'native' as const } : safePattern(regex, time);
  return {
    pattern: { ...engine, first: firstName(source), prefix: prefixOf(tokens) },
    names: keys.map(({ name }) => (typeof name === 'string' ? name : unnamed)),
  };
}

const oneName = '[^\\/]+?';

/** The library keeps `:a-:b` from backtracking by letting `b` hold no hyphen; here another matcher does, and `b` may hold one. */
function plainToken(token: Token): Token {
  if (typeof token === 'string' || !token.pattern.startsWith('(?:(?!')) return token;
  return { ...token, pattern: oneName };
}

/** Digits, word characters or one of some words: what cannot hold a slash. */
const simple = /^(?:\[\^\\\/\]\+\?|\\[dw]\+?|\[[a-zA-Z0-9_-]+\][+]?|[\w-]+(?:\|[\w-]+)*)$/;

/** Nothing but names between slashes, and at most a rest behind them: there is one way only to match them. */
const isPlain = (tokens: readonly Token[]): boolean =>
  tokens.every((token, index) => {
    const isLast = index === tokens.length - 1;
    if (typeof token === 'string') return index === 0 || token.startsWith('/');
    if (token.prefix !== '/' || token.suffix !== '') return false;
    if (token.pattern === '.*') return isLast && token.modifier === '';
    return simple.test(token.pattern) && (token.modifier === '' || (isLast && token.pattern === oneName));
  });

/**
 * A regular expression of the author's that must match the whole of a value.
 * @throws Error with a sentence for the author
 */
export function valuePattern(source: string, time: CheckTime): { pattern: CompiledPattern; names: string[] } {
  if (source.length > longestPattern) throw new Error(`a pattern may have ${longestPattern} characters`);
  try {
    new RegExp(`^${source}$`);
  } catch (error) {
    throw new Error(`"${source}" is not a regular expression: ${(error as Error).message}`, { cause: error });
  }
  const names = [...source.matchAll(/\(\?<([a-zA-Z][a-zA-Z0-9_]*)>/g)].map((match) => match[1]!);
  return { pattern: { ...safePattern(`^${source}$`, time), first: null, prefix: '' }, names };
}

/**
 * Chooses the matcher: one whose time grows with the text and no faster, since one visitor with a long path must not stop the
 * edge for all. What it cannot express (look-around) is left to the language's own where that one cannot be made to run for
 * long either, and refused otherwise.
 */
function safePattern(regex: string, time: CheckTime): Pick<CompiledPattern, 'regex' | 'engine'> {
  if (time.leftMs <= 0)
    throw new Error(`"${regex}" is not looked at: the patterns of this file take too long to check`);
  const begun = performance.now();
  try {
    return engineFor(regex, time);
  } finally {
    time.leftMs -= performance.now() - begun;
  }
}

function engineFor(regex: string, time: CheckTime): Pick<CompiledPattern, 'regex' | 'engine'> {
  let steps: number;
  try {
    steps = RE2JS.compile(regex).programSize();
  } catch {
    if (isSafe(regex)) return { regex, engine: 'native' };
    throw new Error(
      `"${regex}" could be made to run for very long by a visitor, and its look-around cannot be matched otherwise; write it without`,
    );
  }
  time.leftSteps -= steps;
  if (steps > mostSteps || time.leftSteps < 0)
    throw new Error(
      `"${regex}" is too large with its repetitions written out (${steps} steps; one may have ${mostSteps}, and all of a file have their end too)`,
    );
  return { regex, engine: 'linear' };
}

function isSafe(regex: string): boolean {
  try {
    // The detector knows no names of groups; they change nothing.
    const nameless = regex.replace(/\(\?<[a-zA-Z][a-zA-Z0-9_]*>/g, '(');
    return isSafePattern(nameless, { maxScore: 200, maxSteps: 4_000, timeout: 500 }).safe;
  } catch {
    return false;
  }
}

/** The first name of the paths, when it is written out: nothing in it is special, and nothing can be added to it. */
function firstName(source: string): string | null {
  const found = /^\/([\w%~.-]+)(\/.*)?$/s.exec(source);
  const [, name, rest] = found ?? [];
  // `/a.b` is taken as it is written; `/a/:x*` also matches `/a`, whose first name is the same.
  return name !== undefined && !(rest ?? '').startsWith('/{') ? name : null;
}

/** The text before the first place. A place that may be left out takes the slash before it along. */
function prefixOf(tokens: readonly Token[]): string {
  const [text, next] = tokens;
  if (typeof text !== 'string') return '';
  return typeof next === 'object' && next.modifier === '' ? text + next.prefix : text;
}
