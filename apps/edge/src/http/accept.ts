/**
 * Reads an `Accept` or `Accept-Encoding` value into weights.
 * @returns lower-case token → q between 0 and 1; malformed weights count as 1
 */
export function parseWeights(value: string | undefined): Map<string, number> {
  const weights = new Map<string, number>();
  if (value === undefined) return weights;
  for (const part of value.split(',')) {
    const [token, ...parameters] = part.split(';');
    const name = token!.trim().toLowerCase();
    if (name === '') continue;
    let q = 1;
    for (const parameter of parameters) {
      const match = /^\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*$/i.exec(parameter);
      if (match) q = Math.min(1, Number(match[1]));
    }
    weights.set(name, q);
  }
  return weights;
}

/** True when an HTML page is an acceptable answer; a request without Accept takes anything. */
export function acceptsHtml(accept: string | undefined): boolean {
  if (accept === undefined || accept.trim() === '') return true;
  const weights = parseWeights(accept);
  for (const type of ['text/html', 'application/xhtml+xml', 'text/*', '*/*']) {
    const q = weights.get(type);
    if (q !== undefined) return q > 0;
  }
  return false;
}

/** True when HTML is asked for by name, at least as much as JSON: browsers, not API clients. */
export function prefersHtml(accept: string | undefined): boolean {
  const weights = parseWeights(accept);
  const html = Math.max(weights.get('text/html') ?? 0, weights.get('application/xhtml+xml') ?? 0);
  return html > 0 && html >= (weights.get('application/json') ?? 0);
}

/**
 * The content coding to send (RFC 9110 section 12.5.3); null means as it is.
 * @param available those that exist; of equally welcome ones the first wins
 */
export function chooseEncoding(
  acceptEncoding: string | undefined,
  available: readonly string[],
): string | null {
  if (acceptEncoding === undefined || available.length === 0) return null;
  const weights = parseWeights(acceptEncoding);
  const any = weights.get('*') ?? 0;
  const identity = weights.get('identity') ?? 0;
  let best: string | null = null;
  let bestQ = 0;
  for (const coding of available) {
    const q = weights.get(coding) ?? any;
    if (q > bestQ) {
      best = coding;
      bestQ = q;
    }
  }
  return bestQ >= identity ? best : null;
}
