import { printable } from '@nebo/archive';

/** An image cannot be had or run, for a reason that its user can understand. */
export class ImageFailure extends Error {
  override readonly name = 'ImageFailure';
}

/** Words of a stranger as they may stand in a sentence: one line, at most 200 characters. */
export const told = (text: string): string => printable(text.replace(/\s+/g, ' ').trim());
