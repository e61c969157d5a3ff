/** Octets that messages are made of. */
export const TAB = 9;
export const LF = 10;
export const CR = 13;
export const SPACE = 32;
export const COLON = 58;
export const SEMICOLON = 59;

const table = (isIn: (code: number) => boolean): Uint8Array =>
  Uint8Array.from({ length: 256 }, (_, code) => (isIn(code) ? 1 : 0));

/** Of a token (RFC 9110 section 5.6.2): names of fields and methods. */
export const TOKEN = table((code) => /[!#$%&'*+\-.^_`|~0-9A-Za-z]/.test(String.fromCharCode(code)));

/** Of a field's value, and of a reason phrase (RFC 9110 section 5.5): no control but the tab. */
export const TEXT = table((code) => code === TAB || (code >= SPACE && code !== 127));

/** Of a request's target: what is visible in ASCII. */
export const VISIBLE = table((code) => code > SPACE && code < 127);

/** Value of a hexadecimal digit, 255 for all else. */
export const HEX = Uint8Array.from({ length: 256 }, (_, code) => {
  const digit = '0123456789abcdef'.indexOf(String.fromCharCode(code).toLowerCase());
  return digit < 0 ? 255 : digit;
});

/** Whether all of a text is in a table; what is no Latin-1 never is. */
export function isAll(text: string, of: Uint8Array): boolean {
  for (let at = 0; at < text.length; at += 1) if (of[text.charCodeAt(at)] !== 1) return false;
  return true;
}
