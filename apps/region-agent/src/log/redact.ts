/** What stands in a log in place of a secret. */
export const mask = '********';

/** Shorter values are no secrets worth hiding: masking every "1" would make a log unreadable. */
const shortest = 4;

/** Replaces secret values in log lines. Values of several lines are hidden line by line. */
export class Redactor {
  private readonly patterns: string[];

  constructor(secrets: readonly string[]) {
    const parts = secrets.flatMap((secret) => secret.split(/[\r\n]+/)).map((part) => part.trim());
    // Longest first, so that a secret that contains another leaves nothing of itself.
    this.patterns = [...new Set(parts)]
      .filter((part) => part.length >= shortest)
      .sort((a, b) => b.length - a.length);
  }

  /** The line with every secret replaced. */
  redact(line: string): string {
    let clean = line;
    for (const pattern of this.patterns) if (clean.includes(pattern)) clean = clean.replaceAll(pattern, mask);
    return clean;
  }

  /** The longest secret: a line that is cut must be held until this many characters follow the cut. */
  get reach(): number {
    return this.patterns[0]?.length ?? 0;
  }

  /** The place nearest to `at` where a text may be cut without cutting a secret in two. */
  safeCut(text: string, at: number): number {
    let cut = at;
    for (const pattern of this.patterns) {
      for (
        let from = text.indexOf(pattern, Math.max(0, cut - pattern.length + 1));
        from >= 0 && from < cut;
      ) {
        if (from + pattern.length > cut) {
          cut = from > 0 ? from : from + pattern.length;
          break;
        }
        from = text.indexOf(pattern, from + 1);
      }
    }
    return cut;
  }
}
