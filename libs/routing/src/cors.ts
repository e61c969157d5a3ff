import type { CorsRule } from './compiled.js';
import type { RoutedRequest } from './request.js';

type HeaderPair = [name: string, value: string];

/**
 * What a request from a page of another origin is told. Without a rule nothing: no origin is ever allowed that nobody named.
 * A preflight under a rule is answered here, also when it is refused: then without a word that would allow it.
 */
export function corsAnswer(
  rule: CorsRule | null,
  { method, headers }: RoutedRequest,
): { isPreflight: boolean; headers: HeaderPair[] } {
  if (!rule) return { isPreflight: false, headers: [] };
  const { origin } = headers;
  const isOpen = rule.origins[0] === '*';
  const isPreflight =
    method === 'OPTIONS' && origin !== undefined && headers['access-control-request-method'] !== undefined;
  // Caches must not give one origin's answer to another.
  const told: HeaderPair[] = isOpen ? [] : [['Vary', 'Origin']];
  const isAllowed = origin !== undefined && (isOpen || rule.origins.includes(origin));
  if (!isAllowed) return { isPreflight, headers: told };
  told.push(['Access-Control-Allow-Origin', isOpen ? '*' : origin]);
  if (rule.credentials) told.push(['Access-Control-Allow-Credentials', 'true']);
  if (isPreflight) {
    told.push(['Access-Control-Allow-Methods', rule.methods.join(', ')]);
    if (rule.headers.length > 0) told.push(['Access-Control-Allow-Headers', rule.headers.join(', ')]);
    told.push(['Access-Control-Max-Age', String(rule.maxAge)]);
  } else if (rule.expose.length > 0) told.push(['Access-Control-Expose-Headers', rule.expose.join(', ')]);
  return { isPreflight, headers: told };
}
