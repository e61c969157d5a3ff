import { type ApiError, badRequest } from '@nebo/service-kit';
import type { OrderMessage } from '../completions/order.js';

/** Most bytes of one picture. */
export const pictureLimit = 10 * 1024 * 1024;

/** Media types that vendors read, by the bytes that such a file begins with. */
const types: readonly [type: string, isIt: (bytes: Buffer) => boolean][] = [
  ['image/png', (bytes) => bytes.subarray(0, 8).equals(Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'))],
  ['image/jpeg', (bytes) => bytes[0] === 0xff && bytes[1] === 0xd8 && bytes[2] === 0xff],
  ['image/gif', (bytes) => /^GIF8[79]a$/.test(bytes.toString('latin1', 0, 6))],
  [
    'image/webp',
    (bytes) => bytes.toString('latin1', 0, 4) === 'RIFF' && bytes.toString('latin1', 8, 12) === 'WEBP',
  ],
];

/** The media type of a picture by its first bytes (12 are enough); null: none that is known. */
export function typeOf(bytes: Buffer): string | null {
  return types.find(([, isIt]) => isIt(bytes))?.[0] ?? null;
}

export const unsupportedImage = (at: string, why: string): ApiError =>
  badRequest('unsupported_image', `${at}: ${why}; PNG, JPEG, WebP and GIF are supported`);

export const imageTooLarge = (at: string): ApiError =>
  badRequest('image_too_large', `${at}: a picture may have at most ${pictureLimit} bytes`);

/** Calls `see` for each picture of the messages; `at` names its place as the chat format has it. */
export function eachPicture(messages: readonly OrderMessage[], see: (url: string, at: string) => void): void {
  for (const [index, { content }] of messages.entries()) {
    if (typeof content === 'string' || content === null) continue;
    for (const [position, part] of content.entries())
      if (part.type === 'image_url') see(part.image_url.url, `messages.${index}.content.${position}`);
  }
}

/**
 * Checks the pictures of an order as far as that needs no network: links are http or https, `data:` URIs are base64 of a
 * picture of a known type and size. Nothing is fetched.
 * @throws ApiError 400 `unsupported_image`, `image_too_large`, naming the message
 */
export function checkPictures(messages: readonly OrderMessage[]): void {
  eachPicture(messages, (url, at) => {
    if (/^data:/i.test(url)) checkData(url, at);
    else if (!/^https?:\/\//i.test(url) || !URL.canParse(url))
      throw unsupportedImage(at, 'must be an http or https link or a data: URI');
  });
}

function checkData(url: string, at: string): void {
  const comma = url.indexOf(',');
  const head = url.slice(5, Math.min(Math.max(comma, 5), 205)).toLowerCase();
  if (comma === -1 || !head.endsWith(';base64')) throw unsupportedImage(at, 'the data: URI is not base64');
  const length = url.length - comma - 1;
  const padding = url.endsWith('==') ? 2 : url.endsWith('=') ? 1 : 0;
  if (Math.floor((length * 3) / 4) - padding > pictureLimit) throw imageTooLarge(at);
  if (length % 4 === 1 || !isBase64(url, comma + 1, url.length - padding))
    throw unsupportedImage(at, 'the data: URI is not base64');
  if (trueType(url, comma) === null) throw unsupportedImage(at, 'the data: URI holds no picture');
  if (!/^image\/(png|jpe?g|webp|gif);/.test(head))
    throw unsupportedImage(at, `the data: URI is labelled ${head.split(';', 1)[0] || 'nothing'}`);
}

/** What the bytes behind the comma are. */
const trueType = (url: string, comma: number): string | null =>
  typeOf(Buffer.from(url.slice(comma + 1, comma + 33), 'base64'));

/**
 * A checked `data:` URI under the label of what it holds: screenshots are often labelled as another type, which some
 * vendors refuse. The same text where the label is right, and for links.
 */
export function trulyLabelled(url: string): string {
  if (!/^data:/i.test(url)) return url;
  const comma = url.indexOf(',');
  const label = `data:${trueType(url, comma)};base64`;
  return url.startsWith(label) && comma === label.length ? url : `${label}${url.slice(comma)}`;
}

/** Only characters of base64 from `start` to `end`; by a sticky pattern, without a copy of the picture. */
function isBase64(text: string, start: number, end: number): boolean {
  const other = /[^A-Za-z0-9+/]/g;
  other.lastIndex = start;
  const found = other.exec(text);
  return found === null || found.index >= end;
}
