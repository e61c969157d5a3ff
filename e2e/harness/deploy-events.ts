import type { V1DeployEvent } from '@nebo/contracts';
import type { Api } from './api.js';

/** What a reader of a deploy's events has heard. */
export interface FollowedDeploy {
  /** Events in their order, those that came again with a new connection included. */
  events: V1DeployEvent[];
  /** Ids of the events. */
  ids: string[];
  /** What stood behind `done`. */
  done: V1DeployEvent;
}

/**
 * Reads the events of a deploy to their end, and cuts the connection after every single one: each time it goes on by
 * `Last-Event-ID`, as a browser does.
 * @throws Error when a connection ends without `done`
 */
export async function followDeploy(api: Api, app: string, build: string): Promise<FollowedDeploy> {
  const events: V1DeployEvent[] = [];
  const ids: string[] = [];
  for (;;) {
    const headers: Record<string, string> = { authorization: `Bearer ${api.key}` };
    const heard = ids.at(-1);
    if (heard !== undefined) headers['last-event-id'] = heard;
    const cut = new AbortController();
    const url = `${api.baseUrl}/apps/${app}/events?build_id=${build}`;
    const answer = await fetch(url, { headers, signal: cut.signal });
    if (answer.status !== 200) throw new Error(`events answered ${answer.status}: ${await answer.text()}`);
    const block = await nextBlock(answer.body!);
    cut.abort();
    const data = JSON.parse(/^data: (.*)$/m.exec(block)![1]!) as V1DeployEvent;
    if (/^event: done$/m.test(block)) return { events, ids, done: data };
    events.push(data);
    ids.push(/^id: (.*)$/m.exec(block)![1]!);
  }
}

/** The first block of a stream that is no comment. */
async function nextBlock(body: ReadableStream<Uint8Array>): Promise<string> {
  let text = '';
  for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    const block = text
      .split('\n\n')
      .slice(0, -1)
      .find((one) => /^(event|data|id):/m.test(one));
    if (block !== undefined) return block;
  }
  throw new Error(`the stream ended without done: ${text}`);
}
