import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { sharedPostgres } from '@nebo/test-kit';
import { account, caller, type Router, startRouter } from '../../test/harness.js';
import { Purses } from '../money/purses.js';
import { chatFormat } from './chat/chat.format.js';
import type { Format, FormatRequest } from './format.js';
import { Generation } from './generation.js';

/** An order that is admitted holds money, so whatever goes wrong behind the admission must give it back. */
describe('a writer of a format that fails', () => {
  let router: Router;
  let server: Server;
  let purses: Purses;
  let broken: Partial<FormatRequest>;
  beforeAll(async () => {
    router = await startRouter();
    const { app } = router.nebo.services.get('inference-router')!;
    const generation = app.get(Generation);
    purses = app.get(Purses);
    server = createServer((request, raw) => {
      const format: Format = {
        ...chatFormat,
        read: (...given) => ({ ...chatFormat.read(...given), ...broken }),
      };
      const stream = request.url === '/stream';
      const body = { model: 'glm-5.3', stream, messages: [{ role: 'user', content: 'hi' }] };
      const reply = { raw, hijack: () => reply } as unknown as FastifyReply;
      void generation.serve(format, caller, body, { id: 'r' } as FastifyRequest, reply);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  });
  afterAll(async () => {
    server?.closeAllConnections();
    server?.close();
    await router?.stop();
    await (await sharedPostgres()).stop();
  });
  const ask = (path: string) =>
    fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`).then(async (response) => ({
      status: response.status,
      text: await response.text(),
    }));
  const fail = (): never => {
    throw new Error('a writer that fails');
  };

  it.each([
    ['before it begins, plain', '/plain', { plain: fail }],
    ['before it begins, streamed', '/stream', { stream: fail }],
    ['at the first piece, plain', '/plain', { plain: () => ({ add: fail, body: fail }) }],
    [
      'at the first piece, streamed',
      '/stream',
      { stream: () => ({ beat: '', pieces: fail, end: fail, broken: () => '' }) },
    ],
  ])('holds nothing and charges nothing: %s', async (_when, path, parts) => {
    broken = parts as Partial<FormatRequest>;
    expect((await ask(path)).status).toBe(500);
    expect(purses.holds).toBe(0);
    expect(purses.sums(account)).toMatchObject({ held: 0n, owed: 0n });
  });
});
