/** Shorter values are no secrets worth hiding: masking every "1" would make a log unreadable. */
const shortest = 4;
/** Columns at which `base64` and `openssl` break their output. */
const wraps = [76, 64];

/**
 * The texts by which a secret shows itself in output: each of its lines as it is, and the whole as programs write it down:
 * as JSON, in an address or a form, quoted for a shell, in base64 (alone, or within more, as in a Basic header) and in hex.
 * Whoever takes it apart on purpose can print it all the same: this is against accidents.
 * @returns distinct texts of at least 4 UTF-16 units
 */
export function secretForms(secret: string): string[] {
  const lines = secret.split(/[\r\n]+/).map((line) => line.trim());
  const forms = [...lines, ...inJson(secret), ...inShell(secret), ...inAddress(secret), ...encoded(secret)];
  return [...new Set(forms)].filter((form) => form.length >= shortest);
}

/** As JavaScript, Python, PHP and Go write it between quotes. */
function inJson(secret: string): string[] {
  const plain = JSON.stringify(secret).slice(1, -1);
  const ascii = plain.replace(/[\u007f-\uffff]/g, unicodeEscape);
  const html = plain.replace(/[<>&\u2028\u2029]/g, unicodeEscape);
  return [plain, ascii, html, plain.replaceAll('/', '\\/'), ascii.replaceAll('/', '\\/')];
}

const unicodeEscape = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;

/** Inside single quotes, as `set -x` and `env` show it. */
function inShell(secret: string): string[] {
  return secret.includes("'") ? [secret.replaceAll("'", "'\\''"), secret.replaceAll("'", "\\'")] : [];
}

/** Percent-encoded by the different ideas of what needs it, in both cases; and as a form has it. */
function inAddress(secret: string): string[] {
  // A lone half of a surrogate pair has no bytes: it becomes the replacement character, as it does in a program's output.
  const component = encodeURIComponent(secret.toWellFormed());
  const strict = component.replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
  const form = new URLSearchParams([['', secret]]).toString().slice(1);
  const all = [component, strict, strict.replaceAll('%2F', '/'), form, encodeURI(secret.toWellFormed())];
  return all.flatMap((text) => [text, text.replace(/%[0-9A-F]{2}/g, (escape) => escape.toLowerCase())]);
}

/** Base64 at each of the three places that the secret may have in a group of bytes, and hex. */
function encoded(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const whole = bytes.toString('base64');
  const hex = bytes.toString('hex');
  const forms = [hex, hex.toUpperCase(), whole];
  for (const before of [0, 1, 2]) {
    const text = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64');
    // Only characters that say something of the secret alone: the neighbours' bits are in the others.
    const core = text.slice(before === 0 ? 0 : before + 1, Math.floor(((before + bytes.length) * 8) / 6));
    forms.push(core);
    if (before === 0)
      for (const column of wraps)
        if (core.length > column)
          for (let at = 0; at < core.length; at += column) forms.push(core.slice(at, at + column));
  }
  return forms.flatMap((form) => [form, form.replaceAll('+', '-').replaceAll('/', '_')]);
}
