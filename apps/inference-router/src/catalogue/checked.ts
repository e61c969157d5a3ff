import { ConfigError } from '@nebo/service-kit';

/** A value of the file with its place, so that each refusal names the file and the key. */
export class Checked {
  constructor(
    private readonly file: string,
    private readonly path: string,
    readonly value: unknown,
  ) {}

  error(message: string): ConfigError {
    return new ConfigError(`${this.file}: ${this.path || 'the file'}: ${message}`);
  }

  /** An object's fields; others than the known ones are refused, for they are typing errors. */
  fields(known: readonly string[]): { get(name: string): Checked; has(name: string): boolean } {
    const record = this.record();
    for (const name of Object.keys(record)) {
      if (!known.includes(name))
        throw this.at(name, undefined).error(`there is no such setting; known are ${known.join(', ')}`);
    }
    return {
      get: (name) => this.at(name, record[name]),
      has: (name) => record[name] !== undefined && record[name] !== null,
    };
  }

  entries(): [string, Checked][] {
    return Object.entries(this.record()).map(([name, value]) => [name, this.at(name, value)]);
  }

  items(): Checked[] {
    if (!Array.isArray(this.value) || this.value.length === 0)
      throw this.error('must be a list with at least one entry');
    return this.value.map((item: unknown, index) => new Checked(this.file, `${this.path}[${index}]`, item));
  }

  record(): Record<string, unknown> {
    if (typeof this.value !== 'object' || this.value === null || Array.isArray(this.value))
      throw this.error('must be a mapping of names to values');
    return this.value as Record<string, unknown>;
  }

  text(): string {
    if (typeof this.value !== 'string' || this.value === '') throw this.error('must be a text');
    return this.value;
  }

  bool(): boolean {
    if (typeof this.value !== 'boolean') throw this.error('must be true or false');
    return this.value;
  }

  /** A whole number of at least `min`. */
  int(min: number): number {
    if (typeof this.value !== 'number' || !Number.isSafeInteger(this.value) || this.value < min)
      throw this.error(`must be a whole number from ${min}`);
    return this.value;
  }

  private at(name: string, value: unknown): Checked {
    return new Checked(this.file, this.path ? `${this.path}.${name}` : name, value);
  }
}
