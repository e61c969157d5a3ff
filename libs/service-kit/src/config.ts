/** Raised at start for a wrong or missing setting; the message names it. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

/** Reads settings from the environment; every reader throws `ConfigError` naming the variable. */
export class Config {
  constructor(readonly env: Readonly<Record<string, string | undefined>> = process.env) {}

  /** A text, or the default; without a default it must be there. */
  text(name: string, fallback?: string): string {
    const value = this.env[name];
    if (value !== undefined && value !== '') return value;
    if (fallback === undefined) throw new ConfigError(`${name} is not set`);
    return fallback;
  }

  /** A text that may be absent. */
  optional(name: string): string | undefined {
    return this.env[name] || undefined;
  }

  /** A whole number within limits. */
  int(name: string, fallback: number, limits: { min?: number; max?: number } = {}): number {
    const text = this.env[name];
    if (text === undefined || text === '') return fallback;
    const { min = 0, max = Number.MAX_SAFE_INTEGER } = limits;
    const value = Number(text);
    if (!/^-?\d+$/.test(text) || value < min || value > max) {
      throw new ConfigError(`${name} must be a whole number from ${min} to ${max}, not "${text}"`);
    }
    return value;
  }

  /** A TCP port. */
  port(name: string, fallback: number): number {
    return this.int(name, fallback, { min: 0, max: 65_535 });
  }

  /** A comma list; empty when absent. */
  list(name: string): string[] {
    return (this.env[name] ?? '')
      .split(',')
      .map((part) => part.trim())
      .filter(Boolean);
  }

  /** An absolute URL of one of the protocols. */
  url(name: string, fallback: string | undefined, protocols: readonly string[]): string {
    const text = this.text(name, fallback);
    const url = URL.canParse(text) ? new URL(text) : undefined;
    if (!url || !protocols.includes(url.protocol)) {
      throw new ConfigError(
        `${name} must be an address starting with ${protocols.map((p) => `${p}//`).join(' or ')}, not "${text}"`,
      );
    }
    return text;
  }

  /** `N/S`: N requests per S seconds; null for "0" (off). */
  rate(name: string, fallback: string): { requests: number; seconds: number } | null {
    const text = this.text(name, fallback);
    if (text === '0') return null;
    const match = /^(\d{1,9})\/(\d{1,6})$/.exec(text);
    if (!match || Number(match[1]) < 1 || Number(match[2]) < 1) {
      throw new ConfigError(`${name} must look like 1200/60 (requests per seconds) or be 0, not "${text}"`);
    }
    return { requests: Number(match[1]), seconds: Number(match[2]) };
  }
}
