import { type Node, parseTree, printParseErrorCode, type ParseError } from 'jsonc-parser';
import type { CheckTime } from './pattern.js';
import type { Problem } from './problem.js';

/** How long all patterns of a file together may be checked, milliseconds; thousands of usual ones take a quarter of it. */
const longestCheckMs = 10_000;
/** Steps of all patterns of a file: thousands of usual ones, some tens of megabytes. */
const mostSteps = 300_000;

/** A value of a routing file with the line where it stands. */
export class Entry {
  constructor(
    readonly file: RoutingFile,
    private readonly node: Node,
  ) {}

  get line(): number {
    return this.file.lineAt(this.node.offset);
  }

  get value(): unknown {
    return valueOf(this.node);
  }

  /** Entries of a list; null when it is none. */
  items(): Entry[] | null {
    return this.node.type === 'array'
      ? (this.node.children ?? []).map((child) => new Entry(this.file, child))
      : null;
  }

  /** Fields of an object, in order; null when it is none. */
  fields(): { name: string; line: number; entry: Entry }[] | null {
    if (this.node.type !== 'object') return null;
    return (this.node.children ?? []).flatMap((property) => {
      const [name, value] = property.children ?? [];
      if (!name || !value) return [];
      const line = this.file.lineAt(property.offset);
      return [{ name: String(name.value), line, entry: new Entry(this.file, value) }];
    });
  }

  field(name: string): Entry | null {
    // As in JSON.parse the last of several counts.
    return this.fields()?.findLast((field) => field.name === name)?.entry ?? null;
  }

  /** Notes what is wrong with it. */
  fault(message: string): void {
    this.file.fault(this.line, message);
  }
}

/** A routing file while it is read: collects all that is wrong with it instead of stopping at the first. */
export class RoutingFile {
  readonly faults: Problem[] = [];
  readonly warnings: Problem[] = [];
  readonly checking: CheckTime = { leftMs: longestCheckMs, leftSteps: mostSteps };
  private readonly starts: number[];

  constructor(
    readonly name: string,
    readonly text: string,
  ) {
    this.starts = [0];
    for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) this.starts.push(at + 1);
  }

  /** The whole file; null when it is not JSON, which is noted. */
  root(): Entry | null {
    const errors: ParseError[] = [];
    // A byte order mark is a habit of some editors, not of JSON.
    const node = parseTree(this.text.replace(/^\uFEFF/, ' '), errors, { disallowComments: true });
    for (const { error, offset } of errors.slice(0, 1))
      this.fault(this.lineAt(offset), `is not JSON: ${sentence(printParseErrorCode(error))}`);
    if (!node || errors.length > 0) {
      if (errors.length === 0) this.fault(1, 'is empty');
      return null;
    }
    return new Entry(this, node);
  }

  lineAt(offset: number): number {
    let low = 0;
    let high = this.starts.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.starts[middle]! <= offset) low = middle;
      else high = middle;
    }
    return low + 1;
  }

  fault(line: number, message: string): void {
    this.faults.push({ file: this.name, line, message });
  }

  warn(line: number, message: string): void {
    this.warnings.push({ file: this.name, line, message });
  }
}

function valueOf(node: Node): unknown {
  if (node.type === 'array') return (node.children ?? []).map(valueOf);
  if (node.type !== 'object') return node.value;
  const value: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  for (const { children } of node.children ?? []) {
    const [name, found] = children ?? [];
    if (name && found) value[String(name.value)] = valueOf(found);
  }
  return value;
}

/** `CommaExpected` → `comma expected`. */
const sentence = (code: string): string => code.replace(/(?<=[a-z])([A-Z])/g, ' $1').toLowerCase();
