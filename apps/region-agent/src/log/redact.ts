import { secretForms } from './secret-forms.js';

/** What stands in a log in place of a secret. */
export const mask = '********';

/** Units at the start of a form by which it is looked up; no form is shorter. */
const head = 4;
const bits = 16;

interface Span {
  start: number;
  end: number;
}

/**
 * Replaces secret values in log lines, in every form in which programs write them (`secretForms`). One pass over the line
 * however many secrets there are: a build may print a hundred megabytes.
 */
export class Redactor {
  /** By their first units. */
  private readonly forms = new Map<string, string[]>();
  /** Which hashes of four units begin a form: most places of a line are done with after one look. */
  private readonly begins = new Uint8Array(1 << bits);
  /** The longest form, UTF-16 units: a line that is cut must be held until so much follows the cut. */
  readonly reach: number;

  constructor(secrets: readonly string[]) {
    const all = [...new Set(secrets.flatMap(secretForms))];
    this.reach = all.reduce((most, { length }) => Math.max(most, length), 0);
    for (const form of all) {
      const key = form.slice(0, head);
      this.forms.set(key, [...(this.forms.get(key) ?? []), form]);
      this.begins[hash(form, 0)] = 1;
    }
    // The longest at a place covers the others there.
    for (const list of this.forms.values()) list.sort((a, b) => b.length - a.length);
  }

  /** The line with every secret replaced; where two overlap, nothing of either is left. */
  redact(line: string): string {
    let clean = '';
    let from = 0;
    let last: Span | null = null;
    for (const span of this.spans(line)) {
      if (last !== null && span.start < last.end) {
        last.end = Math.max(last.end, span.end);
        continue;
      }
      if (last !== null) {
        clean += line.slice(from, last.start) + mask;
        from = last.end;
      }
      last = { ...span };
    }
    return last === null ? line : clean + line.slice(from, last.start) + mask + line.slice(last.end);
  }

  /** The place nearest to `at` where a text may be cut without cutting a secret in two. */
  safeCut(text: string, at: number): number {
    const around = [...this.spans(text)].filter(({ start, end }) => start < at + this.reach && end > 0);
    const through = (cut: number) => around.find(({ start, end }) => start < cut && cut < end);
    let before = at;
    for (let span = through(before); span; span = through(before)) before = span.start;
    if (before > 0) return before;
    let after = at;
    for (let span = through(after); span; span = through(after)) after = span.end;
    return after;
  }

  /** Where forms stand, by their start; they may overlap. */
  private *spans(text: string): Generator<Span> {
    if (this.reach === 0) return;
    for (let start = 0; start + head <= text.length; start++) {
      if (this.begins[hash(text, start)] === 0) continue;
      const form = this.forms
        .get(text.slice(start, start + head))
        ?.find((one) => text.startsWith(one, start));
      if (form !== undefined) yield { start, end: start + form.length };
    }
  }
}

/** Of four units; equal units have equal hashes, and that is all that is asked of it. */
const hash = (text: string, at: number): number =>
  (text.charCodeAt(at) * 73 +
    text.charCodeAt(at + 1) * 1_031 +
    text.charCodeAt(at + 2) * 8_209 +
    text.charCodeAt(at + 3) * 31_337) &
  ((1 << bits) - 1);
