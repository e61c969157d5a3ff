import pico from 'picocolors';
import { type CliError } from './errors.js';
import { forTerminal, type Io } from './io.js';

export interface TalkOptions {
  quiet: boolean;
  debug: boolean;
  color: boolean;
  /** Errors as one JSON object. */
  jsonErrors: boolean;
}

/** Everything that is said beside the answer: notices, progress, errors. All of it goes to stderr. */
export class Talk {
  readonly color: ReturnType<typeof pico.createColors>;
  private shown = false;

  constructor(
    private readonly io: Io,
    readonly options: TalkOptions,
  ) {
    this.color = pico.createColors(options.color);
  }

  /** True when a line may be rewritten in place. */
  get live(): boolean {
    return this.io.stderr.isTTY === true && !this.options.quiet && this.io.env['TERM'] !== 'dumb';
  }

  /** One line for people; silent with `--quiet`. */
  notice(text: string): void {
    if (!this.options.quiet) this.write(text);
  }

  /** A line that a person should not miss; `--quiet` does not silence it, machine output does. */
  warn(text: string): void {
    if (!this.options.quiet || !this.options.jsonErrors)
      this.write(`${this.color.yellow('warning:')} ${text}`);
  }

  /** A line of a log that was asked for as progress. */
  logLine(text: string): void {
    if (this.options.quiet) return;
    this.write(this.io.stderr.isTTY ? forTerminal(text, this.options.color) : text);
  }

  /** A line of `--debug`. */
  debug(text: string): void {
    if (this.options.debug) this.write(this.color.dim(`debug: ${text}`));
  }

  /** The live line at the bottom of a terminal; nothing elsewhere. */
  status(text: string): void {
    if (!this.live) return;
    const width = Math.max(10, (this.io.stderr.columns || 80) - 1);
    this.io.stderr.write(`\r\u001b[2K${this.color.dim(text.slice(0, width))}`);
    this.shown = true;
  }

  /** Takes the live line away. */
  clear(): void {
    if (this.shown) this.io.stderr.write('\r\u001b[2K');
    this.shown = false;
  }

  /** Prints an error in the form that the output format asks for. */
  error(error: CliError): void {
    this.clear();
    if (this.options.jsonErrors) {
      this.io.stderr.write(`${JSON.stringify(error)}\n`);
      return;
    }
    const { lines, hint, requestId } = error.more;
    this.write(`${this.color.red('error:')} ${forTerminal(error.message, false)}`);
    for (const line of lines ?? []) this.write(`  ${forTerminal(line, this.options.color)}`);
    if (hint) this.write(`  ${this.color.cyan('next:')} ${hint}`);
    if (requestId) this.write(this.color.dim(`  request id: ${requestId}`));
  }

  private write(text: string): void {
    this.clear();
    this.io.stderr.write(`${text}\n`);
  }
}
