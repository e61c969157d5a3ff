/** Longest opening of `{"input":"` that is waited for; whatever begins otherwise is read whole at the end. */
const longestOpening = 64;
const opening = /^\s*\{\s*"input"\s*:\s*"/;
const escapes: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };

/**
 * Reads the text of a custom tool out of the function arguments that the model writes (`{"input":"…"}`), as they stream.
 * Pieces may end anywhere, also inside an escape or between the halves of a character.
 */
export class CustomInput {
  private raw = '';
  private state: 'opening' | 'text' | 'closed' | 'whole' = 'opening';
  /** What of the text cannot be read yet: half an escape, or the first half of a character. */
  private rest = '';

  /** Takes a piece of the arguments; gives the text that it adds. */
  push(piece: string): string {
    this.raw += piece;
    if (this.state === 'text') return this.read(piece);
    if (this.state !== 'opening') return '';
    const found = opening.exec(this.raw);
    if (found) {
      this.state = 'text';
      return this.read(this.raw.slice(found[0].length));
    }
    if (this.raw.length > longestOpening) this.state = 'whole';
    return '';
  }

  /** What is left of the text when the arguments are complete. */
  end(): string {
    if (this.state === 'opening' || this.state === 'whole') return wholeText(this.raw);
    // Half a character is given as it is; half an escape is nothing yet.
    const rest = this.state === 'text' && !this.rest.includes('\\') ? this.rest : '';
    this.state = 'closed';
    return rest;
  }

  private read(piece: string): string {
    const text = this.rest + piece;
    this.rest = '';
    let out = '';
    let at = 0;
    while (at < text.length) {
      const stop = nextSpecial(text, at);
      out += text.slice(at, stop);
      if (stop === text.length) break;
      if (text[stop] === '"') {
        this.state = 'closed';
        return out;
      }
      const length = text[stop + 1] === 'u' ? 6 : 2;
      if (stop + length > text.length) {
        this.rest = text.slice(stop);
        break;
      }
      out += unescaped(text.slice(stop, stop + length));
      at = stop + length;
    }
    // A delta must not end between the halves of a character.
    if (isFirstHalf(out.charCodeAt(out.length - 1))) {
      this.rest = out.slice(-1) + this.rest;
      out = out.slice(0, -1);
    }
    return out;
  }
}

/** The text that function arguments as a whole stand for, however the model wrote them. */
export function wholeText(raw: string): string {
  let value: unknown;
  try {
    value = JSON.parse(raw);
  } catch {
    return raw;
  }
  if (typeof value === 'string') return value;
  if (typeof value !== 'object' || value === null) return raw;
  const { input } = value as { input?: unknown };
  if (input !== undefined) return typeof input === 'string' ? input : JSON.stringify(input);
  const fields: unknown[] = Object.values(value);
  return fields.length === 1 && typeof fields[0] === 'string' ? fields[0] : raw;
}

function nextSpecial(text: string, from: number): number {
  for (let at = from; at < text.length; at += 1) if (text[at] === '"' || text[at] === '\\') return at;
  return text.length;
}

function unescaped(escape: string): string {
  if (escape.length === 2) return escapes[escape[1]!] ?? escape[1]!;
  const digits = escape.slice(2);
  return /^[0-9a-f]{4}$/i.test(digits) ? String.fromCharCode(Number.parseInt(digits, 16)) : escape;
}

const isFirstHalf = (code: number): boolean => code >= 0xd800 && code <= 0xdbff;
