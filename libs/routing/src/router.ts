import type {
  CompiledRouting,
  CorsRule,
  Destination,
  HeaderRule,
  RedirectRule,
  RewriteRule,
} from './compiled.js';
import { corsAnswer } from './cors.js';
import { headerFault } from './header-text.js';
import { Conditions, Matchers, type RoutedRequest } from './request.js';
import { type Met, RuleList } from './rule-list.js';
import { fill, fillPlain, fillText } from './fill.js';

/** What the rules say before anything is looked for. */
export type Before =
  | { kind: 'redirect'; status: number; location: string; headers: HeaderPair[] }
  /** The answer to a preflight request: 204 with these headers. */
  | { kind: 'preflight'; headers: HeaderPair[] }
  /** Go on; these headers belong to whatever is answered. `cors`: a rule says who may read it, and nobody else does. */
  | { kind: 'go'; headers: HeaderPair[]; cors: boolean };

export type HeaderPair = [name: string, value: string];

/** Where a request shall be answered from instead. */
export interface Rewritten {
  /** `https://host[:port]`; null: from here. */
  origin: string | null;
  /** Path and query. */
  url: string;
}

/** Applies the compiled rules of one artifact. Keeps nothing of a request. */
export class Router {
  private readonly redirects: RuleList<RedirectRule>;
  private readonly headers: RuleList<HeaderRule>;
  private readonly rewrites: RuleList<RewriteRule>;
  private readonly cors: RuleList<CorsRule>;
  private readonly matchers = new Matchers();

  constructor({ redirects, headers, rewrites, cors }: CompiledRouting) {
    this.redirects = new RuleList(redirects);
    this.headers = new RuleList(headers);
    this.rewrites = new RuleList(rewrites);
    this.cors = new RuleList(cors);
  }

  /** Preflight, then redirects (the first that matches), then the headers of all rules that match. */
  before(request: RoutedRequest): Before {
    const conditions = new Conditions(request, this.matchers);
    const rule = first(this.cors.met(request, conditions))?.rule ?? null;
    const cors = corsAnswer(rule, request);
    if (cors.isPreflight) return { kind: 'preflight', headers: cors.headers };
    const met = first(this.redirects.met(request, conditions));
    if (met) {
      const { status, to } = met.rule;
      const made = address(to, met, request);
      // What a visitor puts into a place must not make a path of this site into the address of another (`//host`).
      const location = to.origin === null ? (made?.replace(/^[/\\]{2,}/, '/') ?? null) : made;
      if (location !== null && location !== request.path + request.query)
        return { kind: 'redirect', status, location, headers: cors.headers };
    }
    const set = new Map<string, HeaderPair>();
    for (const one of this.headers.met(request, conditions)) {
      for (const { name, value } of one.rule.set) {
        const pair: HeaderPair = [fillText(name, one), fillText(value, one)];
        if (headerFault(...pair) === null) set.set(pair[0].toLowerCase(), pair);
      }
    }
    for (const pair of cors.headers) {
      const known = set.get(pair[0].toLowerCase());
      set.set(
        pair[0].toLowerCase(),
        known && pair[0] === 'Vary' ? ['Vary', `${known[1]}, ${pair[1]}`] : pair,
      );
    }
    return { kind: 'go', headers: [...set.values()], cors: rule !== null };
  }

  /** The first rewrite that matches; null: none does. For a request that no file answers. */
  rewrite(request: RoutedRequest): Rewritten | null {
    const met = first(this.rewrites.met(request, new Conditions(request, this.matchers)));
    if (!met) return null;
    const { to } = met.rule;
    const url = address({ ...to, origin: null, hash: [] }, met, request);
    if (url === null) return null;
    if (!to.origin) return { origin: null, url };
    const origin = originOf(to, met);
    return origin === null ? null : { origin, url };
  }
}

function first<T>(all: Iterable<T>): T | null {
  for (const one of all) return one;
  return null;
}

function originOf({ origin }: Destination, met: Pick<Met<unknown>, 'groups' | 'found'>): string | null {
  const text = fillText(origin!, met);
  return /^https?:\/\/[A-Za-z0-9.-]+(:\d{1,5})?$/.test(text) ? text : null;
}

/**
 * The address that a destination makes of a request; null when it makes none that can be used. The request's own query comes
 * along, except for the names that the destination sets.
 */
function address(to: Destination, met: Met<unknown>, request: RoutedRequest): string | null {
  const origin = to.origin ? originOf(to, met) : '';
  if (origin === null) return null;
  const path = fill(to.path, met) || '/';
  const own = to.query.map(({ name, value }): [string, string] => [name, fillPlain(value, met)]);
  const names = new Set(own.map(([name]) => name));
  const brought = request.query.length > 1 ? [...new URLSearchParams(request.query)] : [];
  const pairs = [...own, ...brought.filter(([name]) => !names.has(name))];
  const isSame = own.length === 0;
  // Without a query of its own the request's goes along letter by letter.
  const query = isSame ? request.query : pairs.length > 0 ? `?${new URLSearchParams(pairs).toString()}` : '';
  return `${origin}${path}${query}${fill(to.hash, met)}`;
}
