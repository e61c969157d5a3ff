import { type ApiError, badRequest } from '@nebo/service-kit';
import type { CatalogueModel } from '../../catalogue/model.js';
import type { OrderMessage, OrderPart, ToolCall } from '../../completions/order.js';
import { callArguments } from '../call-arguments.js';

type Json = Readonly<Record<string, unknown>>;

const roles: Readonly<Record<string, OrderMessage['role']>> = {
  system: 'system',
  // Vendors know no such role.
  developer: 'system',
  user: 'user',
  assistant: 'assistant',
  tool: 'tool',
};

const invalid = (message: string): ApiError => badRequest('invalid_messages', message);
const unsupported = (message: string): ApiError => badRequest('unsupported_content', message);

/**
 * Checks the messages of a chat request and keeps of them what vendors know.
 * @throws ApiError 400 `unsupported_content` naming the message, `invalid_messages`
 */
export function readMessages(value: unknown, model: CatalogueModel): OrderMessage[] {
  if (!Array.isArray(value) || value.length === 0) throw invalid('messages: at least one message is needed');
  return (value as unknown[]).map((message, index) => readMessage(message, index, model));
}

function readMessage(value: unknown, index: number, model: CatalogueModel): OrderMessage {
  const at = `messages.${index}`;
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalid(`${at}: must be an object`);
  const given = value as Json;
  const role =
    typeof given['role'] === 'string' && Object.hasOwn(roles, given['role'])
      ? roles[given['role']]
      : undefined;
  if (!role) throw invalid(`${at}.role: must be one of ${Object.keys(roles).join(', ')}`);
  const calls = role === 'assistant' ? readCalls(given['tool_calls'], at) : [];
  const content = readContent(given['content'], at, model);
  const isEmpty = content === null || content.length === 0;
  if (content === null && role !== 'assistant')
    throw invalid(`${at}.content: must be a text or a list of parts`);
  const reasoning = given['reasoning_content'] ?? given['reasoning'];
  if (role === 'tool' && typeof given['tool_call_id'] !== 'string')
    throw invalid(`${at}.tool_call_id: must be a string`);
  return {
    role,
    // Some vendors refuse null without calls, others an empty text with them.
    content: isEmpty ? (calls.length > 0 ? null : '') : content,
    ...(typeof given['name'] === 'string' ? { name: given['name'] } : {}),
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(role === 'tool' ? { tool_call_id: given['tool_call_id'] as string } : {}),
    ...(role === 'assistant' && typeof reasoning === 'string' && reasoning !== ''
      ? { reasoning_content: reasoning }
      : {}),
  };
}

function readContent(value: unknown, at: string, model: CatalogueModel): string | OrderPart[] | null {
  if (typeof value === 'string') return value;
  if (value === undefined || value === null) return null;
  if (!Array.isArray(value)) throw invalid(`${at}.content: must be a text or a list of parts`);
  const parts = (value as unknown[])
    .map((part, index) => readPart(part, `${at}.content.${index}`, model))
    // Vendors refuse empty ones.
    .filter((part) => part.type !== 'text' || part.text !== '');
  if (parts.some((part) => part.type !== 'text')) return parts;
  // Not all of them take lists, but all take a text; the other formats do the same.
  return parts.map((part) => (part as { text: string }).text).join('\n\n');
}

function readPart(value: unknown, at: string, model: CatalogueModel): OrderPart {
  const part = (typeof value === 'object' && value !== null ? value : {}) as Json;
  switch (part['type']) {
    case 'text':
      if (typeof part['text'] !== 'string') throw invalid(`${at}.text: must be a string`);
      return { type: 'text', text: part['text'] };
    case 'refusal':
      // An earlier answer that comes back in its own shape.
      return { type: 'text', text: typeof part['refusal'] === 'string' ? part['refusal'] : '' };
    case 'image_url':
      return readImage(part['image_url'], at, model);
    default:
      throw unsupported(
        `${at}: parts of type ${JSON.stringify(part['type'] ?? null)} are not supported; text and images are`,
      );
  }
}

function readImage(value: unknown, at: string, model: CatalogueModel): OrderPart {
  if (!model.vision) throw unsupported(`${at}: ${model.id} takes no images`);
  const { url, detail } = (typeof value === 'object' && value !== null ? value : {}) as Json;
  if (typeof url !== 'string') throw invalid(`${at}.image_url.url: must be a string`);
  if (!/^(https?:\/\/|data:image\/)/i.test(url))
    throw invalid(`${at}.image_url.url: must be an http link or a data: URI of an image`);
  return { type: 'image_url', image_url: { url, ...(typeof detail === 'string' ? { detail } : {}) } };
}

function readCalls(value: unknown, at: string): ToolCall[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw invalid(`${at}.tool_calls: must be a list`);
  return (value as unknown[]).map((call, index) => {
    const { id, function: told } = (typeof call === 'object' && call !== null ? call : {}) as Json;
    const { name, arguments: args } = (typeof told === 'object' && told !== null ? told : {}) as Json;
    if (typeof id !== 'string' || typeof name !== 'string')
      throw invalid(`${at}.tool_calls.${index}: needs an id and a function with a name`);
    return { id, type: 'function', function: { name, arguments: callArguments(args) } };
  });
}
