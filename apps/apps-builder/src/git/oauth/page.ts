/** What a person sees who comes back from a git host. */
export interface Page {
  status: number;
  title: string;
  text: string;
}

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

const escaped = (text: string): string => text.replace(/[&<>"']/g, (char) => escapes[char]!);

/** Nothing on the page comes from elsewhere, and its address, which held a code, goes nowhere. */
export const pageHeaders: Readonly<Record<string, string>> = {
  'content-type': 'text/html; charset=utf-8',
  'cache-control': 'no-store',
  'content-security-policy':
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
};

/** The page as HTML: plain, without scripts, with no secret in it. */
export const pageHtml = ({ title, text }: Page): string =>
  `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${escaped(title)}</title></head>
<body><h1>${escaped(title)}</h1><p>${escaped(text)}</p></body>
</html>
`;
