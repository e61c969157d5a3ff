import { readFile } from 'node:fs/promises';

/**
 * Small files in memory, least recently used out first. Paths lie in content-addressed folders, so what was read once
 * stays right.
 */
export class FileCache {
  private readonly entries = new Map<string, Buffer>();
  private held = 0;

  /**
   * @param maxBytes of all files together
   * @param maxFileBytes of one file; larger ones are streamed
   */
  constructor(
    readonly maxBytes: number,
    readonly maxFileBytes: number,
  ) {}

  /** Bytes held now. */
  get bytes(): number {
    return this.held;
  }

  /** The content of a file of `size` bytes, or null if it is too large for the cache. */
  async read(file: string, size: number): Promise<Buffer | null> {
    if (size > this.maxFileBytes) return null;
    const known = this.entries.get(file);
    if (known) {
      this.entries.delete(file);
      this.entries.set(file, known);
      return known;
    }
    const content = await readFile(file);
    if (!this.entries.has(file)) {
      this.entries.set(file, content);
      this.held += content.length;
    }
    for (const [oldest, bytes] of this.entries) {
      if (this.held <= this.maxBytes) break;
      this.entries.delete(oldest);
      this.held -= bytes.length;
    }
    return content;
  }
}
