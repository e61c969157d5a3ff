/** How many columns of a terminal a text takes: wide letters and emoji two, combining marks none. */
export function width(text: string): number {
  let columns = 0;
  for (const char of text) columns += charWidth(char.codePointAt(0)!);
  return columns;
}

function charWidth(code: number): number {
  if (code < 0x300) return 1;
  if (code <= 0x36f || code === 0x200d || (code >= 0xfe00 && code <= 0xfe0f)) return 0;
  const wide =
    (code >= 0x1100 && code <= 0x115f) ||
    (code >= 0x2e80 && code <= 0xa4cf) ||
    (code >= 0xac00 && code <= 0xd7a3) ||
    (code >= 0xf900 && code <= 0xfaff) ||
    (code >= 0xfe30 && code <= 0xfe6f) ||
    (code >= 0xff00 && code <= 0xff60) ||
    (code >= 0x1f300 && code <= 0x1faff) ||
    (code >= 0x20000 && code <= 0x3fffd);
  return wide ? 2 : 1;
}

/** The text in at most so many columns, with an ellipsis when it was cut. */
export function fit(text: string, columns: number): string {
  if (width(text) <= columns) return text;
  let cut = '';
  let used = 0;
  for (const char of text) {
    const next = charWidth(char.codePointAt(0)!);
    if (used + next > columns - 1) break;
    cut += char;
    used += next;
  }
  return `${cut}…`;
}
