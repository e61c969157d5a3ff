/** A request as it would be sent. */
export interface PlannedRequest {
  method: string;
  url: string;
  headers: Record<string, string>;
  /** Text of a JSON body. */
  body: string | null;
  /** A body that comes from a file, `-` for stdin. */
  file: string | null;
}

/** A word as a POSIX shell reads it back. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The request in words, and the same as curl; the key stands there as a variable, never itself. */
export function asCurl(request: PlannedRequest): string {
  const { method, url, headers, body, file } = request;
  const shown = [`${method} ${url}`, ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`)];
  if (body !== null) shown.push('', body);
  if (file !== null) shown.push('', file === '-' ? '(the bytes of stdin)' : `(the bytes of ${file})`);
  const words = ['curl', ...(method === 'GET' ? [] : ['-X', method]), shellWord(url)];
  for (const [name, value] of Object.entries(headers)) {
    if (name === 'authorization') words.push('-H', '"Authorization: Bearer $NEBO_API_KEY"');
    else words.push('-H', shellWord(`${name}: ${value}`));
  }
  if (body !== null) words.push('--data-binary', shellWord(body));
  if (file !== null) words.push('--data-binary', file === '-' ? '@-' : shellWord(`@${file}`));
  return `${shown.join('\n')}\n\n${words.join(' ')}\n`;
}
