/**
 * A routing file as the edge applies it: JSON, made once at build time. One form for static sites and servers, so that the
 * same rules hold for both.
 */
export interface CompiledRouting {
  format: 1;
  /** Redirects of `cleanUrls`, `trailingSlash` and `redirects`, in the order in which they are tried. */
  redirects: RedirectRule[];
  /** All that match are applied; a later value of the same name wins. */
  headers: HeaderRule[];
  /** Tried when no file answers; the first that matches wins. */
  rewrites: RewriteRule[];
  cors: CorsRule[];
}

/** How a path is recognised. */
export interface CompiledPattern {
  /** Source of an anchored regular expression over the encoded path. */
  regex: string;
  /** `native`: the language's own matcher cannot be made to run for long by it; `linear`: another one takes it. */
  engine: 'native' | 'linear';
  /** The first name of every path that can match, when there is just one. */
  first: string | null;
  /** What every path that can match begins with. */
  prefix: string;
}

/** Text with places: a number stands for a group of the pattern, a name for what a condition has found. */
export type Template = readonly (string | number | { found: string })[];

interface Rule {
  /** Of the routing file. */
  line: number;
  pattern: CompiledPattern;
  has: Condition[];
  missing: Condition[];
}

export interface RedirectRule extends Rule {
  status: number;
  to: Destination;
}

export interface RewriteRule extends Rule {
  to: Destination;
}

export interface HeaderRule extends Rule {
  set: { name: Template; value: Template }[];
}

/** Who may read answers from pages of other origins. */
export interface CorsRule extends Rule {
  /** Exact origins, or `*` alone. */
  origins: string[];
  methods: string[];
  headers: string[];
  expose: string[];
  credentials: boolean;
  /** Seconds that a browser keeps the answer to a preflight. */
  maxAge: number;
}

/** Where to: another path here, or an address elsewhere. */
export interface Destination {
  /** `https://host[:port]`; null: here. */
  origin: Template | null;
  path: Template;
  query: { name: string; value: Template }[];
  /** With its `#`; empty without one. */
  hash: Template;
}

/** One thing that a request must have, or must not. */
export interface Condition {
  type: 'host' | 'header' | 'cookie' | 'query';
  /** Header names in lower case; null for the host. */
  key: string | null;
  /** Null: any value. */
  value: CompiledPattern | null;
}
