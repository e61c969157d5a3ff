import type { IncomingHttpHeaders } from 'node:http';
import type { CompiledPattern, Condition } from './compiled.js';
import { type Match, matcher, RulesTooSlow } from './matcher.js';

/** What the rules look at. */
export interface RoutedRequest {
  method: string;
  /** As it arrived: encoded, without query. */
  path: string;
  /** With its `?`; empty without one. */
  query: string;
  /** Lower case, without port. */
  host: string;
  headers: IncomingHttpHeaders;
}

/** How long rules may look at one request, milliseconds: each match is bounded, a file may have thousands. */
const longestMs = 250;
/** How long matchers may be made for one request beside that; what is made is kept for the next one. */
const longestMakingMs = 1_000;

/** The conditions of rules, against one request; what costs something is read when it is first asked for. */
export class Conditions {
  private cookies: Map<string, string> | null = null;
  private parameters: URLSearchParams | null = null;
  private until = performance.now() + longestMs;
  private leftForMaking = longestMakingMs;

  constructor(
    private readonly request: RoutedRequest,
    private readonly matchers: Matchers,
  ) {}

  /** To be asked before each match. @throws RulesTooSlow when this request has had its time */
  checkTime(): void {
    if (performance.now() > this.until)
      throw new RulesTooSlow(`the rules of a site took more than ${longestMs} ms for one request`);
  }

  /** Makes a matcher, which does not count as looking. */
  make(pattern: CompiledPattern): Match {
    const begun = performance.now();
    const made = matcher(pattern);
    const granted = Math.min(performance.now() - begun, this.leftForMaking);
    this.leftForMaking -= granted;
    this.until += granted;
    return made;
  }

  /** What all of them found by name; null when one does not hold. */
  all(conditions: readonly Condition[]): Map<string, string> | null {
    const found = new Map<string, string>();
    for (const condition of conditions) if (!this.holds(condition, found)) return null;
    return found;
  }

  /** Whether one holds. */
  any(conditions: readonly Condition[]): boolean {
    const found = new Map<string, string>();
    return conditions.some((condition) => this.holds(condition, found));
  }

  private holds({ type, key, value: pattern }: Condition, found: Map<string, string>): boolean {
    const value = this.valueOf(type, key);
    if (value === undefined) return false;
    if (!pattern) {
      // A header that is there without a value is as good as none.
      if (value === '' && type !== 'query') return false;
      found.set(key!, value);
      return true;
    }
    this.checkTime();
    const hit = this.matchers.of(pattern, () => this.make(pattern))(value);
    if (!hit) return false;
    for (const [name, text] of Object.entries(hit.named)) if (text !== undefined) found.set(name, text);
    if (type === 'host') found.set('host', value);
    return true;
  }

  private valueOf(type: Condition['type'], key: string | null): string | undefined {
    const { headers, host, query } = this.request;
    switch (type) {
      case 'host':
        return host;
      case 'header': {
        const value = headers[key!];
        return Array.isArray(value) ? value.join(', ') : value;
      }
      case 'cookie':
        return (this.cookies ??= cookiesOf(headers.cookie)).get(key!);
      case 'query':
        return (this.parameters ??= new URLSearchParams(query)).getAll(key!).at(-1);
    }
  }
}

/** The matchers of conditions; one for each pattern, as long as the rules live. */
export class Matchers {
  private readonly made = new Map<CompiledPattern, Match>();

  of(pattern: CompiledPattern, make: () => Match): Match {
    let match = this.made.get(pattern);
    if (!match) this.made.set(pattern, (match = make()));
    return match;
  }
}

/** RFC 6265, 5.4; the first of one name counts, as in the clients of this header. */
function cookiesOf(header: string | undefined): Map<string, string> {
  const cookies = new Map<string, string>();
  for (const pair of (header ?? '').split(';')) {
    const at = pair.indexOf('=');
    if (at < 0) continue;
    const name = pair.slice(0, at).trim();
    const value = pair
      .slice(at + 1)
      .trim()
      .replace(/^"(.*)"$/, '$1');
    if (!cookies.has(name)) cookies.set(name, decoded(value));
  }
  return cookies;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
