import type { Router } from './harness.js';

/** One event of a responses stream. */
export interface ResponseEvent extends Told {
  sequence_number: number;
}

/** An event without its number. */
export interface Told {
  type: string;
  [field: string]: unknown;
}

/** Sends a request of the responses format. */
export function respond(router: Router, body: unknown, signal?: AbortSignal): Promise<Response> {
  return fetch(`${router.url}/v1/responses`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    ...(signal ? { signal } : {}),
  });
}

/** Events of a stream, after a check of what holds for each: name and type equal, numbers rising by one. Comments are left out. */
export function responseEvents(text: string): ResponseEvent[] {
  return text
    .split('\n\n')
    .filter((event) => event !== '' && !event.startsWith(':'))
    .map((event, index) => {
      const [, name, data] = /^event: (.+)\ndata: ([^\n]+)$/.exec(event) ?? [];
      if (name === undefined) throw new Error(`not an event: ${event}`);
      const told = JSON.parse(data!) as ResponseEvent;
      if (told.type !== name || told.sequence_number !== index)
        throw new Error(`event ${index} is called ${name}: ${data}`);
      return told;
    });
}

/** Events without numbers, deltas of one item that follow each other as one: how they were cut depends on the moment. */
export function mergedEvents(events: readonly ResponseEvent[]): Told[] {
  const merged: Told[] = [];
  for (const { sequence_number: _number, ...rest } of events) {
    const event: Told = { ...rest, type: rest.type };
    const last = merged.at(-1);
    if (last?.['delta'] !== undefined && last['type'] === event.type && last['item_id'] === event['item_id'])
      last['delta'] = `${String(last['delta'])}${String(event['delta'])}`;
    else merged.push(event);
  }
  return merged;
}

/** Chunk of a provider's stream with one delta. */
export const chunk = (delta: object, finish: string | null = null, usage?: object): string =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }], ...(usage ? { usage } : {}) })}\n\n`;

/** Piece of a tool call: with id and name its beginning. */
export const callPiece = (index: number, args: string, id?: string, name?: string): string =>
  chunk({
    tool_calls: [
      {
        index,
        ...(id ? { id, type: 'function' } : {}),
        function: { ...(name ? { name } : {}), arguments: args },
      },
    ],
  });
