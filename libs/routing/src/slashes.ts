import type { RedirectRule, Template } from './compiled.js';
import type { Entry } from './routing-file.js';

/** Redirects of `cleanUrls` and `trailingSlash`, which come before all others. */
export function slashRules(root: Entry): RedirectRule[] {
  const clean = flag(root, 'cleanUrls');
  const slash = flag(root, 'trailingSlash');
  const rules: RedirectRule[] = [];
  if (clean) {
    const path = slash ? ['/', 1, '/'] : ['/', 1];
    rules.push(rule(root, 'cleanUrls', '^/(?:(.+)/)?index(?:\\.html)?/?$', path));
    rules.push(rule(root, 'cleanUrls', '^/(.*)\\.html/?$', path));
  }
  if (slash === true) {
    // Addresses of RFC 8615 are exact: whoever asks for them follows no redirect.
    rules.push(
      rule(root, 'trailingSlash', '^/(?!\\.well-known(?:/|$))((?:[^/]+/)*[^/\\.]+)$', ['/', 1, '/']),
    );
    rules.push(rule(root, 'trailingSlash', '^/(?!\\.well-known/)((?:[^/]+/)*[^/]+\\.\\w+)/$', ['/', 1]));
  } else if (slash === false) {
    rules.push(rule(root, 'trailingSlash', '^/(.*)\\/$', ['/', 1]));
  }
  return rules;
}

function flag(root: Entry, name: string): boolean | null {
  const field = root.field(name);
  if (!field) return null;
  if (typeof field.value === 'boolean') return field.value;
  field.fault(`"${name}" must be true or false`);
  return null;
}

const rule = (root: Entry, name: string, regex: string, path: Template): RedirectRule => ({
  line: root.field(name)!.line,
  pattern: { regex, engine: 'native', first: null, prefix: '' },
  has: [],
  missing: [],
  status: 308,
  to: { origin: null, path, query: [], hash: [] },
});
