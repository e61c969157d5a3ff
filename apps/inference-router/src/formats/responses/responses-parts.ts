import { type ApiError, badRequest } from '@nebo/service-kit';
import type { CatalogueModel } from '../../catalogue/model.js';
import type { OrderPart } from '../../completions/order.js';

type Json = Readonly<Record<string, unknown>>;

const invalid = (message: string): ApiError => badRequest('invalid_input', message);
const unsupported = (message: string): ApiError => badRequest('unsupported_content', message);
/** What vendors know; other words of newer clients are left out. */
const details = ['auto', 'low', 'high'];

/**
 * Reads the content of a message or of a tool's output: one text where there is nothing but text.
 * @throws ApiError 400 `unsupported_content`, `invalid_input`, naming the item
 */
export function readParts(value: unknown, at: string, model: CatalogueModel): string | OrderPart[] {
  if (typeof value === 'string') return value;
  if (!Array.isArray(value)) throw invalid(`${at}: must be a text or a list of parts`);
  const parts = (value as unknown[]).map((part, index) => readPart(part, `${at}.${index}`, model));
  if (parts.some((part) => part.type !== 'text')) return parts;
  return parts.map((part) => (part as { text: string }).text).join('\n\n');
}

function readPart(value: unknown, at: string, model: CatalogueModel): OrderPart {
  const part = (typeof value === 'object' && value !== null ? value : {}) as Json;
  switch (part['type']) {
    case 'input_text':
    case 'output_text':
    case 'text':
      if (typeof part['text'] !== 'string') throw invalid(`${at}.text: must be a string`);
      return { type: 'text', text: part['text'] };
    case 'refusal':
      return { type: 'text', text: typeof part['refusal'] === 'string' ? part['refusal'] : '' };
    case 'input_image':
      return readImage(part, at, model);
    default:
      throw unsupported(
        `${at}: parts of type ${JSON.stringify(part['type'] ?? null)} are not supported; text and images are`,
      );
  }
}

function readImage(part: Json, at: string, model: CatalogueModel): OrderPart {
  const { image_url: url, detail } = part;
  if (!model.vision) throw unsupported(`${at}: ${model.id} takes no images`);
  if (typeof url !== 'string') {
    if (part['file_id'] !== undefined && part['file_id'] !== null)
      throw unsupported(`${at}: files are not kept here, so an image needs an image_url`);
    throw invalid(`${at}.image_url: must be a string`);
  }
  if (!/^(https?:\/\/|data:image\/)/i.test(url))
    throw invalid(`${at}.image_url: must be an http link or a data: URI of an image`);
  const known = details.find((one) => one === detail);
  return { type: 'image_url', image_url: { url, ...(known ? { detail: known } : {}) } };
}
