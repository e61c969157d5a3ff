import type { Template } from './compiled.js';
import type { Met } from './rule-list.js';

type Values = Pick<Met<unknown>, 'groups' | 'found'>;

/** A part of an address: groups are parts of one already, what conditions found is not. */
export const fill = (template: Template, values: Values): string =>
  filled(template, values, (group) => group, encodeURIComponent);

/** A text as it is: a header's value, a parameter. */
export const fillText = (template: Template, values: Values): string => filled(template, values, same, same);

/** A parameter, which is encoded afterwards: groups are parts of an address, which is encoded already. */
export const fillPlain = (template: Template, values: Values): string =>
  filled(template, values, decoded, same);

const same = (text: string): string => text;

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function filled(
  template: Template,
  { groups, found }: Values,
  writeGroup: (group: string) => string,
  writeFound: (found: string) => string,
): string {
  let text = '';
  for (const piece of template) {
    if (typeof piece === 'string') text += piece;
    else if (typeof piece === 'number') text += writeGroup(groups[piece] ?? '');
    else text += writeFound(found.get(piece.found) ?? '');
  }
  return text;
}
