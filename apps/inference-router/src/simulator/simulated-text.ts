import type { OrderMessage, Tool } from '../completions/order.js';

/** A text in pieces of one simulated token each: words with their space, long words in parts of six characters. */
export function pieces(text: string): string[] {
  return text.match(/\s*(?:[^\s]{1,6})|\s+$/gu) ?? [];
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
    count += 4 + pieces(textOf(message)).length + pieces(message.reasoning_content ?? '').length;
    if (message.tool_calls) count += pieces(JSON.stringify(message.tool_calls)).length;
    if (Array.isArray(message.content))
      count += imageTokens * message.content.filter((part) => part.type === 'image_url').length;
  }
  if (tools.length > 0) count += pieces(JSON.stringify(tools)).length;
  return count;
}
