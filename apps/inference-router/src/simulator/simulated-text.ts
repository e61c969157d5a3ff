import type { OrderMessage, Tool } from '../completions/order.js';

/** A text in pieces of one simulated token each: words with their space, long words in parts of six characters. */
export function pieces(text: string): string[] {
  return text.match(/\s*(?:[^\s]{1,6})|\s+$/gu) ?? [];
}

/** How many pieces a text has; of a long one, nearly. */
function countPieces(text: string): number {
  return text.length > 100_000 ? Math.ceil(text.length / 6) : pieces(text).length;
}

/** Text of the last message of the user. */
export function lastUserText(messages: readonly OrderMessage[]): string {
  const message = messages.findLast(({ role }) => role === 'user');
  return message ? textOf(message) : '';
}

function textOf({ content }: OrderMessage): string {
  if (typeof content === 'string') return content;
  return (content ?? [])
    .map((part) => (part.type === 'text' ? part.text : ''))
    .join(' ')
    .trim();
}

/** Simulated tokens of a picture. */
const imageTokens = 1_000;

/** Simulated tokens of a prompt: one for each piece of text, four a message, a thousand a picture. */
export function countPrompt(messages: readonly OrderMessage[], tools: readonly Tool[] = []): number {
  let count = 3;
  for (const message of messages) {
    count += 4 + countPieces(textOf(message)) + countPieces(message.reasoning_content ?? '');
    if (message.tool_calls) count += countPieces(JSON.stringify(message.tool_calls));
    if (Array.isArray(message.content))
      count += imageTokens * message.content.filter((part) => part.type === 'image_url').length;
  }
  if (tools.length > 0) count += countPieces(JSON.stringify(tools));
  return count;
}
