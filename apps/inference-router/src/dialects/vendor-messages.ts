import type { OrderMessage, OrderPart } from '../completions/order.js';
import type { Dialect } from './dialect.js';

// What is added here is counted by the fixed amount that `inputBound` has for every message, so it stays this short.
const belowText = 'Image below.';
const picturesText = 'Images of the tools above:';
const systemMark = '[System] ';

/**
 * The history as a vendor takes it. The same array comes back where nothing has to change, which is nearly always.
 *
 * - A turn of the assistant without text and calls is left out: an answer whose thoughts took its whole ceiling is one, and
 *   some vendors refuse all that its client asks afterwards.
 * - Tool messages hold text only: their pictures go into one user message after all tool messages of the turn, since no
 *   vendor takes another message between the calls and their results (inference-wire.md, 2 and 6).
 * - Where the template knows one system message at the front only, those at the beginning become one, and later ones
 *   become text of the user at their place: moving them forward would change their meaning and spoil prefix caches.
 */
export function vendorMessages(
  given: readonly OrderMessage[],
  dialect: Pick<Dialect, 'system'>,
): readonly OrderMessage[] {
  const messages = given.some(saysNothing) ? given.filter((message) => !saysNothing(message)) : given;
  const isFirstOnly = dialect.system === 'first';
  if (!messages.some(hasToolPicture) && !(isFirstOnly && hasLateSystem(messages))) return messages;
  const out: OrderMessage[] = [];
  /** What waits for the end of the tool messages. */
  let pictures: OrderPart[] = [];
  let notes: OrderMessage[] = [];
  const flush = () => {
    if (pictures.length > 0)
      out.push({ role: 'user', content: [{ type: 'text', text: picturesText }, ...pictures] });
    for (const note of notes) out.push(note);
    pictures = [];
    notes = [];
  };
  // The first message behind a note that is none itself; looked for once for all notes before it.
  let behind = 0;
  for (const [index, message] of messages.entries()) {
    if (isFirstOnly && message.role === 'system') {
      if (out.every(({ role }) => role === 'system')) mergeSystem(out, message);
      else {
        behind = Math.max(behind, index + 1);
        while (messages[behind]?.role === 'system') behind += 1;
        // A tool's message follows, with nothing but notes in between: its calls are not answered yet.
        if (messages[behind]?.role === 'tool') {
          notes.push(asUser(message));
          continue;
        }
        flush();
        out.push(asUser(message));
      }
      continue;
    }
    if (message.role !== 'tool') flush();
    if (hasToolPicture(message)) {
      const parts = message.content as readonly OrderPart[];
      for (const part of parts) if (part.type === 'image_url') pictures.push(part);
      out.push({ ...message, content: textOf(parts) || belowText });
    } else {
      out.push(message);
    }
  }
  flush();
  return out;
}

const saysNothing = ({ role, content, tool_calls: calls }: OrderMessage): boolean =>
  role === 'assistant' && calls === undefined && (content === null || content.length === 0);

const hasToolPicture = ({ role, content }: OrderMessage): boolean =>
  role === 'tool' && Array.isArray(content) && content.some((part: OrderPart) => part.type === 'image_url');

/** Any system message but a single one at the front. */
const hasLateSystem = (messages: readonly OrderMessage[]): boolean =>
  messages.some(({ role }, index) => role === 'system' && index > 0);

function mergeSystem(out: OrderMessage[], message: OrderMessage): void {
  const before = out[0];
  if (!before) out.push(message);
  else out[0] = { ...before, content: `${contentText(before)}\n\n${contentText(message)}` };
}

function asUser({ content }: OrderMessage): OrderMessage {
  if (Array.isArray(content))
    return { role: 'user', content: [{ type: 'text', text: systemMark }, ...(content as OrderPart[])] };
  return { role: 'user', content: `${systemMark}${contentText({ role: 'system', content })}` };
}

const contentText = ({ content }: OrderMessage): string =>
  typeof content === 'string' ? content : textOf(content ?? []);

const textOf = (parts: readonly OrderPart[]): string =>
  parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
