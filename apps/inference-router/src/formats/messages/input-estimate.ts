import type { CatalogueModel } from '../../catalogue/model.js';
import type { Order, OrderMessage } from '../../completions/order.js';
import { pixelsOf } from './picture-size.js';

/** Role and separators around one message. */
const messageTokens = 4;
/** What a template says around tools. */
const toolsTokens = 40;
/** What a picture of 1024 × 768 costs, nearly (spec 4, image input); one of 4K, ten times as large, costs six times as much. */
const imageTokens = 1_000;
const imagePixels = 1_024 * 768;
const imageGrowth = 0.76;

/**
 * Nearly how many tokens an order's input has, without asking a model: for clients that watch their window. Never
 * billed, and no bound (that is `inputBound`).
 */
export function estimateInput({
  messages,
  tools,
  offer,
}: Pick<Order, 'messages' | 'tools' | 'offer'>): number {
  let tokens = 3;
  for (const message of messages) tokens += messageTokens + ofMessage(message, offer.model);
  if (tools.length > 0) tokens += toolsTokens + ofText(JSON.stringify(tools));
  return Math.max(1, Math.min(Math.ceil(tokens), offer.model.contextWindow));
}

function ofMessage(
  { content, reasoning_content: reasoning, tool_calls: calls }: OrderMessage,
  model: CatalogueModel,
): number {
  let tokens = ofText(reasoning ?? '');
  if (typeof content === 'string') tokens += ofText(content);
  else
    for (const part of content ?? [])
      tokens += part.type === 'text' ? ofText(part.text) : ofImage(part.image_url.url, model);
  if (calls) tokens += ofText(JSON.stringify(calls));
  return tokens;
}

/** A link is not followed, so it counts as a picture of common size. */
function ofImage(url: string, { imageTokensMax }: CatalogueModel): number {
  const pixels = pixelsOf(url) ?? imagePixels;
  return Math.min(imageTokensMax, imageTokens * (pixels / imagePixels) ** imageGrowth);
}

/** Four signs a token in English and code, two and a half in Cyrillic, under two in Chinese; without looking at each sign. */
const ofText = (text: string): number => text.length / 4 + (Buffer.byteLength(text) - text.length) * 0.15;
