import { createInterface } from 'node:readline';
import { interrupted, usageError } from './errors.js';
import { type Io } from './io.js';
import { type Talk } from './talk.js';

/** Questions to a person. Only on a terminal; elsewhere every question is exit 2 that names the flag. */
export class Prompts {
  constructor(
    private readonly io: Io,
    private readonly talk: Talk,
    private readonly noInput: boolean,
  ) {}

  /** Whether a question may be asked. */
  get possible(): boolean {
    return !this.noInput && this.io.stdin.isTTY === true && this.io.stderr.isTTY === true;
  }

  /** One line of text. */
  ask(question: string): Promise<string> {
    this.talk.clear();
    return new Promise((resolve, reject) => {
      const reader = createInterface({ input: this.io.stdin, output: this.io.stderr, terminal: true });
      reader.once('SIGINT', () => {
        reader.close();
        this.io.stderr.write('\n');
        reject(interrupted());
      });
      reader.once('close', () => reject(interrupted()));
      reader.question(question, (answer) => {
        resolve(answer.trim());
        reader.close();
      });
    });
  }

  /** One line that is not shown. */
  askHidden(question: string): Promise<string> {
    this.talk.clear();
    const { stdin, stderr } = this.io;
    stderr.write(question);
    stdin.setRawMode?.(true);
    stdin.setEncoding('utf8');
    stdin.resume();
    return new Promise((resolve, reject) => {
      let typed = '';
      const end = (act: () => void) => {
        stdin.off('data', heard);
        stdin.setRawMode?.(false);
        stdin.pause();
        stderr.write('\n');
        act();
      };
      const heard = (text: string) => {
        for (const char of text) {
          if (char === '\r' || char === '\n') return end(() => resolve(typed.trim()));
          if (char === '\u0003') return end(() => reject(interrupted()));
          if (char === '\u0004') return end(() => (typed ? resolve(typed.trim()) : reject(interrupted())));
          if (char === '\u007f' || char === '\b') typed = typed.slice(0, -1);
          else if (char >= ' ') typed += char;
        }
      };
      stdin.on('data', heard);
    });
  }

  /** Yes or no; Enter is no. */
  async confirm(question: string): Promise<boolean> {
    return /^(y|yes|д|да)$/i.test(await this.ask(`${question} [y/N] `));
  }

  /**
   * One out of a list: by number or by name.
   * @param flag named when nobody can be asked
   * @throws CliError usage, with the choices, where no question is possible
   */
  async choose<T>(
    what: string,
    flag: string,
    choices: readonly T[],
    label: (choice: T) => string,
  ): Promise<T> {
    if (!this.possible) throw missing(what, flag, choices.map(label));
    choices.forEach((choice, index) => this.io.stderr.write(`  ${index + 1}  ${label(choice)}\n`));
    for (;;) {
      const answer = await this.ask(`Which ${what}? `);
      const index = /^\d+$/.test(answer)
        ? Number(answer) - 1
        : choices.findIndex((choice) => label(choice).split(' ')[0] === answer);
      const choice = choices[index];
      if (choice !== undefined) return choice;
      this.io.stderr.write(`A number from 1 to ${choices.length}, please.\n`);
    }
  }
}

/** The error for an answer that is needed and cannot be asked: names the flag and lists the choices. */
export function missing(what: string, flag: string, choices: readonly string[] = []): Error {
  const shown = choices.slice(0, 20);
  return usageError(`A ${what} is needed: ${flag}`, {
    lines:
      shown.length === 0
        ? []
        : [
            'Choices:',
            ...shown.map((choice) => `  ${choice}`),
            ...(choices.length > 20 ? [`  and ${choices.length - 20} more`] : []),
          ],
    extra: choices.length === 0 ? {} : { choices },
  });
}
