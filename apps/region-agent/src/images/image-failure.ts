/** An image cannot be had or run, for a reason that its user can understand. */
export class ImageFailure extends Error {
  override readonly name = 'ImageFailure';
}

/** Words of a stranger as they may stand in a sentence: one line, at most 200 characters. */
export function told(text: string): string {
  // eslint-disable-next-line no-control-regex
  const line = text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]+/g, ' ').trim();
  return line.length > 200 ? `${line.slice(0, 197)}...` : line;
}
