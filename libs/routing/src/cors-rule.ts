import type { CorsRule } from './compiled.js';
import { onlyFields, textsField } from './fields.js';
import type { Entry } from './routing-file.js';
import { ruleOf } from './rule.js';

const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/**
 * `{"source", "origins", "methods", "headers", "expose", "credentials", "maxAge"}`. Origins are exact; `*` stands alone and
 * never together with credentials, which browsers would refuse and which is meant by nobody.
 */
export function corsRule(entry: Entry): CorsRule | null {
  const known = [
    'source',
    'has',
    'missing',
    'origins',
    'methods',
    'headers',
    'expose',
    'credentials',
    'maxAge',
  ];
  onlyFields(entry, known, 'a CORS rule');
  const read = ruleOf(entry);
  const origins = textsField(entry, 'origins');
  if (origins.length === 0) entry.fault('lacks "origins"');
  for (const origin of origins) {
    if (origin !== '*' && !isOrigin(origin))
      entry.fault(`"${origin}" is not an origin like https://example.com, without a path`);
  }
  if (origins.includes('*') && origins.length > 1) entry.fault('"*" stands alone in "origins"');
  const credentials = entry.field('credentials')?.value ?? false;
  if (typeof credentials !== 'boolean') entry.fault('"credentials" must be true or false');
  if (credentials === true && origins.includes('*'))
    entry.fault('"*" cannot be together with "credentials": name the origins');
  const maxAge = entry.field('maxAge')?.value ?? 600;
  if (!Number.isInteger(maxAge) || (maxAge as number) < 0 || (maxAge as number) > 86_400)
    entry.fault('"maxAge" is a number of seconds up to 86400');
  const words = (name: string) => {
    const list = textsField(entry, name);
    for (const word of list) if (!token.test(word)) entry.fault(`"${word}" in "${name}" is not a token`);
    return list;
  };
  const methods = words('methods').map((method) => method.toUpperCase());
  const headers = words('headers');
  const expose = words('expose');
  if (!read) return null;
  return {
    ...read.rule,
    origins,
    methods: methods.length > 0 ? methods : ['GET', 'HEAD', 'POST'],
    headers,
    expose,
    credentials: credentials === true,
    maxAge: maxAge as number,
  };
}

function isOrigin(text: string): boolean {
  try {
    return new URL(text).origin === text && /^https?:/.test(text);
  } catch {
    return false;
  }
}
