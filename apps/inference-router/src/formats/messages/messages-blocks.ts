import { type ApiError, badRequest } from '@nebo/service-kit';
import type { CatalogueModel } from '../../catalogue/model.js';
import type { OrderMessage, OrderPart } from '../../completions/order.js';

export type Json = Readonly<Record<string, unknown>>;

export const invalid = (message: string): ApiError => badRequest('invalid_messages', message);
const unsupported = (message: string): ApiError => badRequest('unsupported_content', message);

/** Content that a model would have to read and cannot: leaving it out silently would change the question. */
const refused = new Set([
  'document',
  'file',
  'input_file',
  'input_audio',
  'audio',
  'video',
  'container_upload',
]);

/** Between texts that were blocks of their own. */
const between = '\n\n';

/** The blocks of a content, with their places. A text is one block. */
export function blocksOf(content: unknown, at: string): [block: Json, at: string][] {
  if (typeof content === 'string') return [[{ type: 'text', text: content }, `${at}.content`]];
  if (!Array.isArray(content)) throw invalid(`${at}.content: must be a text or a list of blocks`);
  return (content as unknown[]).map((block, index) => {
    const place = `${at}.content.${index}`;
    if (typeof block !== 'object' || block === null || Array.isArray(block))
      throw invalid(`${place}: must be an object`);
    return [block as Json, place];
  });
}

/**
 * Text and image parts of a block that a model reads; none for what it cannot know: traces of server tools, marks of
 * other services and whatever newer clients keep in their histories.
 * @throws ApiError 400 `unsupported_content`, `invalid_messages`, naming the place
 */
export function readBlock(block: Json, at: string, model: CatalogueModel): OrderPart[] {
  const { type } = block;
  switch (type) {
    case 'text':
      return textParts(stringAt(block, 'text', at));
    case 'image':
      return [readImage(block['source'], at, model)];
    case 'search_result':
      return textParts(searchText(block));
    case 'compaction':
      // A summary that another service made stands for the messages before it.
      return typeof block['content'] === 'string' ? textParts(block['content']) : [];
    default:
      if (typeof type !== 'string') throw invalid(`${at}.type: must be a string`);
      if (refused.has(type))
        throw unsupported(`${at}: blocks of type ${type} are not supported; text and images are`);
      return [];
  }
}

/** Content as vendors take it everywhere: one text where there is nothing but text. */
export function contentOf(parts: readonly OrderPart[]): string | readonly OrderPart[] {
  return parts.every((part) => part.type === 'text') ? parts.map((part) => part.text).join(between) : parts;
}

/** Contents of the same role in a row, as one; grows in place, since a turn may come in very many pieces. */
export class JoinedContent {
  private text = '';
  private parts: OrderPart[] | null = null;

  add(content: OrderMessage['content']): void {
    if (content === null || content === '') return;
    if (this.parts === null && typeof content === 'string') {
      this.text += this.text === '' ? content : `${between}${content}`;
      return;
    }
    this.parts ??= textParts(this.text);
    if (typeof content === 'string') this.parts.push({ type: 'text', text: content });
    else for (const part of content) this.parts.push(part);
  }

  /** One text where there is nothing but text; '' when there is nothing. */
  get value(): string | readonly OrderPart[] {
    return this.parts ?? this.text;
  }
}

export function stringAt(block: Json, field: string, at: string): string {
  const value = block[field];
  if (typeof value !== 'string') throw invalid(`${at}.${field}: must be a string`);
  return value;
}

// Vendors refuse empty text parts.
const textParts = (text: string): OrderPart[] => (text === '' ? [] : [{ type: 'text', text }]);

function readImage(value: unknown, at: string, model: CatalogueModel): OrderPart {
  if (!model.vision) throw unsupported(`${at}: ${model.id} takes no images`);
  const source = (typeof value === 'object' && value !== null ? value : {}) as Json;
  switch (source['type']) {
    case 'base64': {
      const media = stringAt(source, 'media_type', `${at}.source`);
      if (!/^image\/[\w.+-]+$/i.test(media))
        throw invalid(`${at}.source.media_type: must be that of an image`);
      const data = stringAt(source, 'data', `${at}.source`);
      if (data === '') throw invalid(`${at}.source.data: is empty`);
      return { type: 'image_url', image_url: { url: `data:${media};base64,${data}` } };
    }
    case 'url': {
      const url = stringAt(source, 'url', `${at}.source`);
      if (!/^https?:\/\//i.test(url)) throw invalid(`${at}.source.url: must be an http link`);
      return { type: 'image_url', image_url: { url } };
    }
    case 'file':
      throw unsupported(`${at}: files are not kept here, so an image needs a base64 or url source`);
    default:
      throw invalid(`${at}.source.type: must be base64 or url`);
  }
}

/** What a search of the client's own found. */
function searchText(block: Json): string {
  const texts = Array.isArray(block['content']) ? (block['content'] as (Json | null)[]) : [];
  return [block['title'], block['source'], ...texts.map((text) => text?.['text'])]
    .filter((text) => typeof text === 'string' && text !== '')
    .join('\n');
}
