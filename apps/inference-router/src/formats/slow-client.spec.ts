import { connect } from 'node:net';
import { sharedPostgres } from '@nebo/test-kit';
import { newCaller, plenty, type Router, startRouter, until } from '../../test/harness.js';

/**
 * A client that stops reading keeps an upstream waiting, and most vendors end an answer that nobody takes after a minute:
 * without its counters it would be free, and all that had come before would have been read.
 */
describe('a client that takes nothing any more', () => {
  let router: Router;
  beforeAll(async () => void (router = await startRouter({ env: { NEBO_INFERENCE_CLIENT_IDLE: '1' } })));
  beforeEach(() => {
    router.upstream.reset();
    router.identity = newCaller(router.billing);
  });
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });
  const usage = { prompt_tokens: 10, completion_tokens: 3 };

  /** Asks for a stream over a connection of its own. `reads`: milliseconds between two reads; null: reads nothing more. */
  function ask(reads: number | null) {
    const { hostname, port } = new URL(router.url);
    const body = JSON.stringify({
      model: 'glm-5.3',
      stream: true,
      messages: [{ role: 'user', content: 'hi' }],
    });
    const socket = connect(Number(port), hostname);
    let text = '';
    const end = new Promise<void>((resolve) => socket.on('close', () => resolve()));
    socket.on('error', () => undefined);
    socket.on('data', (data: Buffer) => {
      text += data.toString('latin1');
      socket.pause();
      if (reads !== null) setTimeout(() => socket.resume(), reads);
    });
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n` +
        `content-length: ${body.length}\r\n\r\n${body}`,
    );
    return { socket, end, text: () => text };
  }
  const outcomes = () =>
    router.rows<{ outcome: string }>(
      `select outcome from request_log where key_id = '${router.identity.key_id}'`,
    );

  it('has left, after a while: nothing is held, the upstream is closed, and it counts as a hang-up', async () => {
    router.upstream.next({ chunks: Array.from({ length: 400 }, () => 'x'.repeat(65_536)), usage });
    const client = ask(null);
    const rows = await until(
      async () => ((await outcomes()).length > 0 ? outcomes() : null),
      'the end of the request',
      20_000,
    );
    expect(rows).toEqual([{ outcome: 'aborted' }]);
    expect(router.upstream.requests.at(-1)!.aborted).toBe(true);
    expect(router.billing.inState('held')).toEqual([]);
    expect(router.billing.available(router.identity.account_id)).toBe(plenty);
    client.socket.destroy();
  }, 30_000);

  it('is not one that reads slowly, however long it takes', async () => {
    router.upstream.next({ chunks: Array.from({ length: 90 }, () => 'x'.repeat(65_536)), usage });
    const client = ask(25);
    await client.end;
    expect(client.text()).toContain('[DONE]');
  }, 60_000);
});
