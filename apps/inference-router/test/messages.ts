import { builtInModels } from '../src/catalogue/models.js';
import { Catalogue } from '../src/catalogue/catalogue.js';
import type { OrderMessage } from '../src/completions/order.js';
import { readMessagesRequest } from '../src/formats/messages/messages-request.js';
import { caller, type Router } from './harness.js';

/** One event of a messages stream. */
export interface MessageEvent {
  type: string;
  index?: number;
  [field: string]: unknown;
}

/** All models, running nowhere: for what only reads requests. */
export const bareCatalogue = new Catalogue(
  builtInModels.map((model) => ({ model, routes: [], simulated: false })),
  new Map(),
  null,
);

/** Reads a request of kimi-k3, which can do everything. */
export const readRequest = (body: Record<string, unknown>, purpose: 'answer' | 'count' = 'answer') =>
  readMessagesRequest({ model: 'kimi-k3', max_tokens: 100, ...body }, bareCatalogue, caller, purpose);

/** The messages that a history becomes. */
export const readOf = (messages: unknown, more: Record<string, unknown> = {}): readonly OrderMessage[] =>
  readRequest({ messages, ...more }).order.messages;

/** Sends a request of the messages format. */
export function message(router: Router, body: unknown, path = '/v1/messages'): Promise<Response> {
  return fetch(`${router.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' },
    body: JSON.stringify(body),
  });
}

/** Events of a stream, after a check that each is called like its type. */
export function messageEvents(text: string): MessageEvent[] {
  return text
    .split('\n\n')
    .filter((event) => event !== '')
    .map((event) => {
      const [, name, data] = /^event: (.+)\ndata: (.+)$/.exec(event) ?? [];
      if (name === undefined) throw new Error(`not an event: ${event}`);
      const told = JSON.parse(data!) as MessageEvent;
      if (told.type !== name) throw new Error(`an event is called ${name}: ${data}`);
      return told;
    });
}

/**
 * A stream in short, after a check of its grammar: one start, blocks one after the other with rising numbers, one delta
 * of the message, the end. Deltas of a block are joined.
 */
export function blocksOfStream(events: readonly MessageEvent[]): string[] {
  const told = events.filter(({ type }) => type !== 'ping');
  const types = told.map(({ type }) => type);
  const frame = [types[0], ...types.slice(-2)];
  if (frame.join() !== 'message_start,message_delta,message_stop') throw new Error(`frame: ${types.join()}`);
  const blocks: string[] = [];
  let open: number | null = null;
  for (const { type, index, ...event } of told.slice(1, -2)) {
    const { type: kind, ...fields } = (event['content_block'] ?? event['delta'] ?? {}) as Record<
      string,
      string
    >;
    if (type === 'content_block_start') {
      if (open !== null || index !== blocks.length) throw new Error(`block ${index} begins at a wrong place`);
      open = index;
      blocks.push(kind === 'tool_use' ? `${kind} ${fields['id']} ${fields['name']}: ` : `${kind}: `);
    } else if (index !== open) throw new Error(`${type} of block ${index}, but ${open} is open`);
    else if (type === 'content_block_stop') open = null;
    else if (type === 'content_block_delta')
      blocks[index] += kind === 'signature_delta' ? ' [signed]' : Object.values(fields).join('');
    else throw new Error(`unexpected ${type}`);
  }
  if (open !== null) throw new Error(`block ${open} does not end`);
  return blocks;
}
