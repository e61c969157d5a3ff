import type { CatalogueModel } from '../catalogue/model.js';
import type { Order, OrderMessage } from './order.js';

/** Tokens that a vendor's template may put around everything: its own preamble, tool instructions, the answer's opening. */
const templateTokens = 1_024;
/** Role names and separators around one message. */
const messageTokens = 64;
/** Separators and instructions around one tool or one tool call. */
const toolTokens = 64;

/**
 * An upper bound of the tokens that a vendor can count for an order's input. It holds for any tokenizer whose tokens
 * stand for at least one byte of UTF-8 each (all byte-level BPE ones, which the catalogue's models use):
 *
 * - text counts its bytes; some tokenizers normalise first, so the longest of the text and its NFC and NFKC forms;
 * - tools and tool calls are written anew by templates, with spaces, indentation and `\uXXXX`: twice the bytes of the
 *   JSON with everything beyond ASCII escaped;
 * - an image counts the model's maximum, and is never fetched;
 * - what templates add is covered by fixed amounts;
 * - a vendor cannot read more than the model's window.
 */
export function inputBound(
  order: Pick<Order, 'messages' | 'tools' | 'settings'>,
  model: CatalogueModel,
): number {
  let bound = templateTokens;
  for (const message of order.messages) {
    bound += messageBound(message, model);
    // Once the window is full nothing more is looked at: a body of many megabytes must not hold up everybody else.
    if (bound >= model.contextWindow) return model.contextWindow;
  }
  for (const tool of order.tools) {
    bound += toolTokens + jsonBound(tool);
    if (bound >= model.contextWindow) return model.contextWindow;
  }
  // A schema for the answer becomes part of the prompt at some vendors.
  if (order.settings['response_format'] !== undefined) bound += jsonBound(order.settings['response_format']);
  return Math.min(bound, model.contextWindow);
}

function messageBound(message: OrderMessage, model: CatalogueModel): number {
  let bound = messageTokens;
  const { content } = message;
  const enough = model.contextWindow;
  if (typeof content === 'string') bound += textBound(content, enough);
  else
    for (const part of content ?? []) {
      bound += part.type === 'text' ? textBound(part.text, enough) + 1 : model.imageTokensMax;
      if (bound >= enough) return bound;
    }
  for (const text of [message.name, message.tool_call_id, message.reasoning_content]) {
    if (text !== undefined) bound += textBound(text, enough);
  }
  for (const call of message.tool_calls ?? []) {
    bound += toolTokens + jsonBound(call) + jsonBound(call.function.arguments);
    if (bound >= enough) return bound;
  }
  return bound;
}

/**
 * Most tokens of a text.
 * @param enough a bound from which on it does not matter how high it is; normal forms can be eighteen times as long
 */
export function textBound(text: string, enough = Number.POSITIVE_INFINITY): number {
  const bytes = Buffer.byteLength(text, 'utf8');
  // ASCII: no form of it is longer.
  if (bytes === text.length || bytes >= enough) return bytes;
  return Math.max(
    bytes,
    Buffer.byteLength(text.normalize('NFC'), 'utf8'),
    Buffer.byteLength(text.normalize('NFKC'), 'utf8'),
  );
}

/** Most tokens of a value that a template writes as JSON. */
export function jsonBound(value: unknown): number {
  const json = JSON.stringify(value) ?? '';
  let length = json.length;
  for (let index = 0; index < json.length; index += 1) if (json.charCodeAt(index) > 126) length += 5;
  return 2 * length;
}
