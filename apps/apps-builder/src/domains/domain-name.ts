import { createHmac } from 'node:crypto';
import { domainToASCII } from 'node:url';

/** Most characters of a name without its trailing dot (RFC 1035, 3.1). */
const maxLength = 253;
const label = /^(?!-)[a-z0-9-]{1,63}(?<!-)$/;

/**
 * The name of a custom domain as it is stored and compared: lower case, without trailing dot, letters beyond ASCII as
 * A-labels. `*.` in front stands for one label.
 * @returns null for what cannot be one: a single label, an address, odd characters, too long
 */
export function domainName(text: string): string | null {
  const bare = text.trim().replace(/\.$/, '');
  const star = bare.startsWith('*.');
  const given = star ? bare.slice(2) : bare;
  // What the URL parser would take for more than a name (ports, paths, percent signs) is refused before it is asked.
  if (given === '' || /[\s/\\:@?#%[\]*]/.test(given) || /\.$/.test(given)) return null;
  const name = domainToASCII(given);
  const labels = name.split('.');
  // An address, in whichever notation, ends in a number.
  if (labels.length < 2 || /^(\d+|0x[0-9a-f]*)$/.test(labels.at(-1)!)) return null;
  if (!labels.every((one) => label.test(one))) return null;
  const host = star ? `*.${name}` : name;
  return host.length <= maxLength ? host : null;
}

/** Is it a name for all labels below another one? */
export const isWildcard = (host: string): boolean => host.startsWith('*.');

/** `*.example.org` → `example.org`; other names stay. */
export const baseName = (host: string): string => (isWildcard(host) ? host.slice(2) : host);

/** Where an owner proves a name by a TXT record. */
export const challengeName = (host: string): string => `_nebo-challenge.${baseName(host)}`;

/** What that record must say: another text for each account, the same one whenever it is asked for. */
export const challengeText = (key: Buffer, account: string, host: string): string =>
  createHmac('sha256', key)
    .update(`${account}|${baseName(host)}`)
    .digest('hex')
    .slice(0, 40);
