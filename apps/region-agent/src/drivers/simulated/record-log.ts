import { appendFile, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';

interface Change<T> {
  line: string;
  id: string;
  record: T | null;
  done(error: Error | null): void;
}

/** Lines of the past that are not worth writing the file anew. */
const slack = 1_000;

/**
 * Small records by id in one file of lines, so that one of 100,000 costs as little as one of ten: a change is a line at the
 * end, changes that come together are one write, and the file is written anew when most of its lines are of the past.
 */
export class RecordLog<T extends { id: string }> {
  readonly records = new Map<string, T>();
  private queue: Change<T>[] = [];
  private pumping = false;
  private lines = 0;

  /** @param flush a change is on the disk itself before it is said to be kept: a host that loses its power has it */
  constructor(
    private readonly file: string,
    private readonly flush = false,
  ) {}

  /** Reads what is there. A line that a killed process did not finish was never said to be kept: it is dropped. */
  async start(): Promise<void> {
    await mkdir(dirname(this.file), { recursive: true, mode: 0o700 });
    const text = await readFile(this.file, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return '';
      throw error;
    });
    this.records.clear();
    for (const line of text.split('\n')) {
      try {
        const change = JSON.parse(line) as T & { gone?: true };
        if (change.gone) this.records.delete(change.id);
        else if (typeof change.id === 'string') this.records.set(change.id, change);
      } catch {
        // No line, or half of one.
      }
    }
    await this.rewrite();
  }

  /** On disk first: what was said must be found again. */
  set(record: T): Promise<void> {
    return this.change(record.id, record, JSON.stringify(record));
  }

  async delete(id: string): Promise<void> {
    if (this.records.has(id)) await this.change(id, null, JSON.stringify({ id, gone: true }));
  }

  private change(id: string, record: T | null, line: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.queue.push({ id, record, line, done: (error) => (error ? reject(error) : resolve()) });
      if (!this.pumping) void this.pump();
    });
  }

  private async pump(): Promise<void> {
    this.pumping = true;
    while (this.queue.length > 0) {
      const batch = this.queue.splice(0);
      let fault: Error | null = null;
      try {
        // The break comes first, so that half a line of a full disk spoils nothing that follows.
        await appendFile(this.file, batch.map(({ line }) => `\n${line}`).join(''), {
          mode: 0o600,
          flush: this.flush,
        });
        this.lines += batch.length;
        for (const { id, record } of batch) {
          if (record) this.records.set(id, record);
          else this.records.delete(id);
        }
        // Nothing left of anything: no line is either.
        const past = this.records.size === 0 || this.lines > 2 * this.records.size + slack;
        if (past) await this.rewrite();
      } catch (error) {
        fault = error as Error;
      }
      for (const { done } of batch) done(fault);
    }
    this.pumping = false;
  }

  private async rewrite(): Promise<void> {
    const text = [...this.records.values()].map((record) => JSON.stringify(record)).join('\n');
    await writeFile(`${this.file}.new`, text, { mode: 0o600, flush: this.flush });
    await rename(`${this.file}.new`, this.file);
    this.lines = this.records.size;
  }
}
