/** Most patterns of a file that count. */
const maxPatterns = 500;
const maxLength = 300;

type Token = { kind: 'char'; test: (char: string) => boolean } | { kind: 'star' | 'deep' };

interface Pattern {
  tokens: Token[];
  /** Begins with `!`: what it names is taken after all. */
  back: boolean;
}

/**
 * The rules of a `.dockerignore`: patterns from the folder's root, `*` within a name, `**` across folders, the last one that fits
 * decides. They are walked character by character, so that no pattern of a stranger takes longer than its length allows.
 */
export class IgnoreFile {
  private readonly patterns: Pattern[];
  private readonly takesBack: boolean;

  constructor(text: string) {
    const lines = text
      .replace(/^\ufeff/, '')
      .split(/\r?\n/)
      .filter((line) => !line.startsWith('#'));
    this.patterns = lines.map(patternOf).filter((pattern) => pattern !== null);
    this.patterns.splice(maxPatterns);
    this.takesBack = this.patterns.some(({ back }) => back);
  }

  /** Whether a path (relative, forward slashes) stays out. Of a folder that something may be taken back from: false. */
  out(path: string, directory: boolean): boolean {
    if (directory && this.takesBack) return false;
    let out = false;
    for (const { tokens, back } of this.patterns) if (out === back && fits(tokens, path)) out = !back;
    return out;
  }
}

function patternOf(line: string): Pattern | null {
  const text = line.trim();
  const back = text.startsWith('!');
  const clean = (back ? text.slice(1).trim() : text)
    .split('/')
    .filter((name) => name !== '' && name !== '.')
    .join('/');
  if (clean === '' || clean.length > maxLength) return null;
  return { back, tokens: tokensOf(clean) };
}

function tokensOf(text: string): Token[] {
  const tokens: Token[] = [];
  const char = (wanted: string) => tokens.push({ kind: 'char', test: (found) => found === wanted });
  for (let at = 0; at < text.length; at++) {
    const here = text[at]!;
    if (here === '*' && text[at + 1] === '*') {
      while (text[at + 1] === '*') at++;
      // "**/x" is x in any folder, the first one too.
      if (text[at + 1] === '/') at++;
      tokens.push({ kind: 'deep' });
    } else if (here === '*') tokens.push({ kind: 'star' });
    else if (here === '?') tokens.push({ kind: 'char', test: (found) => found !== '/' });
    else if (here === '\\' && at + 1 < text.length) char(text[++at]!);
    else if (here === '[' && text.indexOf(']', at + 2) > 0) {
      const end = text.indexOf(']', at + 2);
      tokens.push({ kind: 'char', test: classOf(text.slice(at + 1, end)) });
      at = end;
    } else char(here);
  }
  return tokens;
}

function classOf(text: string): (char: string) => boolean {
  const not = text.startsWith('^');
  const ranges: [string, string][] = [];
  const chars = [...(not ? text.slice(1) : text)];
  for (let at = 0; at < chars.length; at++)
    if (chars[at + 1] === '-' && at + 2 < chars.length) ranges.push([chars[at]!, chars[(at += 2)]!]);
    else ranges.push([chars[at]!, chars[at]!]);
  return (char) => char !== '/' && ranges.some(([from, to]) => char >= from && char <= to) !== not;
}

/** Whether the pattern fits the whole path, or a folder that it lies in. */
function fits(tokens: readonly Token[], path: string): boolean {
  let states = spread(tokens, new Set([0]));
  for (const char of path) {
    if (char === '/' && states.has(tokens.length)) return true;
    const next = new Set<number>();
    for (const state of states) {
      const token = tokens[state];
      if (!token) continue;
      if (token.kind === 'char') {
        if (token.test(char)) next.add(state + 1);
      } else if (token.kind === 'deep' || char !== '/') next.add(state);
    }
    if (next.size === 0) return false;
    states = spread(tokens, next);
  }
  return states.has(tokens.length);
}

/** Stars may stand for nothing. */
function spread(tokens: readonly Token[], states: Set<number>): Set<number> {
  for (const state of states) {
    const kind = tokens[state]?.kind;
    if (kind === 'star' || kind === 'deep') states.add(state + 1);
  }
  return states;
}
