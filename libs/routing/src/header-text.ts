/** What a rule may not set: it belongs to the connection, to the length of the answer, or to the app's own sessions. */
const refused = new Set([
  'connection',
  'content-encoding',
  'content-length',
  'content-range',
  'date',
  'host',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'set-cookie',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'x-request-id',
]);

/** Why a header may not be set, in a sentence; null when it may (RFC 9110, 5.1 and 5.5). */
export function headerFault(name: string, value: string): string | null {
  // A name with a place is looked at again when it is filled.
  if (!/^[!#$%&'*+.^_`|~0-9A-Za-z:-]+$/.test(name)) return `"${name}" is not the name of a header`;
  if (refused.has(name.toLowerCase())) return `"${name}" cannot be set by a rule`;
  return isHeld(value) ? null : `the value of "${name}" holds a character that no header can hold`;
}

/** No control character but the tab, and nothing that is more than a byte: an answer could not be written with it. */
function isHeld(text: string): boolean {
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if ((code < 0x20 && code !== 0x09) || code === 0x7f || code > 0xff) return false;
  }
  return true;
}
