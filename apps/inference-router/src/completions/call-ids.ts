import { randomBytes } from 'node:crypto';
import type { OrderMessage } from './order.js';

/** Stands between a vendor's id and what makes it the only one of its kind. */
const mark = '_nebo';
const marked = /_nebo[0-9a-f]{12}$/;

/**
 * Ids of the calls of one answer, for its client. Some vendors count them anew in every answer (`read:0`), while clients
 * take two calls of one id for the same and lose one of them: an id that the history has already gets a mark, and the
 * vendor gets it back without (`withVendorIds`).
 */
export class CallIds {
  private used: Set<string> | undefined;

  /** @param history what was asked */
  constructor(private readonly history: readonly OrderMessage[]) {}

  /** The id that the client sees for a call. @param id the vendor's */
  toldFor(id: string): string {
    this.used ??= new Set(
      this.history.flatMap(({ tool_calls: calls }) => (calls ?? []).map((call) => call.id)),
    );
    const told = this.used.has(id) ? `${id}${mark}${randomBytes(6).toString('hex')}` : id;
    this.used.add(told);
    return told;
  }
}

const isMarked = ({ tool_calls: calls, tool_call_id: id }: OrderMessage): boolean =>
  (id !== undefined && marked.test(id)) || (calls?.some((call) => marked.test(call.id)) ?? false);

/** The history with all ids as the vendor wrote them; the same array where no id has a mark. */
export function withVendorIds(messages: readonly OrderMessage[]): readonly OrderMessage[] {
  if (!messages.some(isMarked)) return messages;
  return messages.map((message) => {
    if (!isMarked(message)) return message;
    const { tool_calls: calls, tool_call_id: id } = message;
    return {
      ...message,
      ...(calls ? { tool_calls: calls.map((call) => ({ ...call, id: call.id.replace(marked, '') })) } : {}),
      ...(id === undefined ? {} : { tool_call_id: id.replace(marked, '') }),
    };
  });
}
