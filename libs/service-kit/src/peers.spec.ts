import { IdentitySigner, identityHeader } from '@nebo/contracts';
import Fastify from 'fastify';
import { Peers } from './peers.js';
import { Targets } from './runtime.js';
import { LocalTarget, localService, RemoteTarget } from './target.js';

describe.each(['local', 'remote'])('peers over a %s target', (form) => {
  const signer = new IdentitySigner(Buffer.alloc(32, 7));
  const targets = new Targets();
  const service = Fastify({ forceCloseConnections: true });
  const peers = new Peers({ targets, signer }, 'compute');

  beforeAll(async () => {
    service.all('/echo', (request) => ({
      body: request.body ?? null,
      identity: signer.read(request.headers[identityHeader] as string),
      operation: request.headers['x-nebo-operation'],
    }));
    service.all('/refuse', (_request, reply) =>
      reply
        .status(402)
        .send({ error: { code: 'insufficient_balance', message: 'no money', details: { available: '7' } } }),
    );
    service.all('/break', (_request, reply) =>
      reply.status(500).send({ error: { code: 'internal_error', message: 'password' } }),
    );
    service.all('/slow', () => new Promise((resolve) => setTimeout(() => resolve({}), 3_000)));
    await service.ready();
    targets.set(
      'billing',
      form === 'local'
        ? new LocalTarget(() => localService(service))
        : new RemoteTarget(await service.listen({ port: 0 })),
    );
  });
  afterAll(async () => {
    await targets.close();
    await service.close();
  });

  it('signs who calls and for whom, and names the operation', async () => {
    const answer = await peers.call<Record<string, unknown>>('billing', '/echo', {
      account: 'a',
      body: { x: 1 },
      operationId: 'op-1',
    });
    expect(answer).toEqual({
      body: { x: 1 },
      identity: { kind: 'service', service: 'compute', account_id: 'a' },
      operation: 'op-1',
    });
  });

  it('hands on a refusal with its code, hides a failure', async () => {
    await expect(peers.call('billing', '/refuse', { account: null })).rejects.toMatchObject({
      status: 402,
      code: 'insufficient_balance',
      fields: { details: { available: '7' } },
    });
    const failure = peers.call('billing', '/break', { account: null });
    await expect(failure).rejects.toMatchObject({ status: 503, code: 'unavailable' });
    await expect(failure).rejects.not.toThrow('password');
  });

  it('gives up after its limit, and at the caller’s signal', async () => {
    await expect(peers.call('billing', '/slow', { account: null, timeoutMs: 50 })).rejects.toMatchObject({
      status: 503,
    });
    await expect(
      peers.call('billing', '/slow', { account: null, signal: AbortSignal.timeout(50) }),
    ).rejects.toMatchObject({ name: 'TimeoutError' });
  });

  it('503 for a service without an address', async () => {
    await expect(peers.call('dns', '/echo', { account: null })).rejects.toMatchObject({ status: 503 });
  });
});
