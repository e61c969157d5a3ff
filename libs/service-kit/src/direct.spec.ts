import { createServer, type Server, type ServerResponse } from 'node:http';
import { mkdtempSync, rmSync } from 'node:fs';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Body, Controller, Injectable, Module, Post, Req, Res } from '@nestjs/common';
import { type Identity, identityHeader } from '@nebo/contracts';
import { freshDatabase, sharedPostgres } from '@nebo/test-kit';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { DirectHandler, DirectRequest, ServiceDefinition } from './index.js';
import { sendJson } from './direct.js';
import { startServices, type TestProcess } from './testing/index.js';

const caller: Identity = {
  kind: 'inference',
  account_id: '00000000-0000-4000-8000-0000000000a1',
  key_id: '00000000-0000-4000-8000-0000000000b1',
  models: null,
  monthly_limit: null,
};

@Injectable()
class Echo implements DirectHandler {
  answer({ identity, body, path, id }: DirectRequest, response: ServerResponse): void {
    sendJson(response, 200, { way: 'direct', kind: identity.kind, body: body ?? null, path, id });
  }
}

@Controller('v1/echo')
class EchoController {
  @Post()
  echo(@Body() body: unknown, @Req() request: FastifyRequest, @Res() reply: FastifyReply): void {
    void reply.send({
      way: 'framework',
      kind: request.identity?.kind,
      body: body ?? null,
      path: '/v1/echo',
      id: request.id,
    });
  }

  @Post('other')
  other(@Res() reply: FastifyReply): void {
    void reply.send({ way: 'framework' });
  }
}

@Module({ controllers: [EchoController], providers: [Echo] })
class EchoModule {}

// A service without tables of its own.
const folder = mkdtempSync(join(tmpdir(), 'nebo-direct-'));

const definition: ServiceDefinition = {
  name: 'inference-router',
  module: EchoModule,
  migrations: pathToFileURL(`${folder}/`),
  doorIdentity: 'inference',
  bodyLimit: 1_000,
  direct: { routes: [{ path: '/v1/echo', operation: 'echo' }], handler: Echo },
};

describe('operations past the framework', () => {
  let nebo: TestProcess;
  let door: Server;
  let url: string;
  beforeAll(async () => {
    nebo = await startServices({
      databaseUrl: await freshDatabase(),
      definitions: [definition],
      env: { NEBO_BODY_MEMORY: '3000' },
    });
    const service = nebo.services.get(definition.name)!;
    door = createServer((request, response) => service.handle(request, response));
    await new Promise<void>((resolve) => door.listen(0, '127.0.0.1', resolve));
    url = `http://127.0.0.1:${(door.address() as AddressInfo).port}`;
  });
  afterAll(async () => {
    door?.closeAllConnections();
    door?.close();
    await nebo?.close();
    rmSync(folder, { recursive: true, force: true });
    await (await sharedPostgres()).stop();
  });

  const headers = (more: Record<string, string> = {}) => ({
    'content-type': 'application/json',
    [identityHeader]: nebo.runtime.signer.sign(caller),
    ...more,
  });
  /** The same request through the door of the process, through the service's own port, and through the framework. */
  const ways: Record<string, (init: RequestInit) => Promise<Response>> = {
    door: (init) => fetch(`${url}/v1/echo`, init),
    port: async (init) => fetch(`http://127.0.0.1:${await port()}/v1/echo`, init),
  };
  let listening: Promise<number> | undefined;
  const port = () => (listening ??= nebo.services.get(definition.name)!.listen(0));

  it.each(Object.keys(ways))('answers with identity, body and id, by the %s', async (way) => {
    const answer = await ways[way]!({
      method: 'POST',
      headers: headers({ 'x-request-id': 'r-1' }),
      body: '{"a":[1]}',
    });
    expect(await answer.json()).toEqual({
      way: 'direct',
      kind: 'inference',
      body: { a: [1] },
      path: '/v1/echo',
      id: 'r-1',
    });
  });

  it('leaves other paths and methods to the framework, and an empty body is none', async () => {
    const other = await fetch(`${url}/v1/echo/other`, { method: 'POST', headers: headers() });
    expect(await other.json()).toEqual({ way: 'framework' });
    expect((await fetch(`${url}/v1/echo`, { headers: headers() })).status).toBe(404);
    const empty = await fetch(`${url}/v1/echo?x=1`, { method: 'POST', headers: headers() });
    expect(await empty.json()).toMatchObject({ way: 'direct', body: null });
  });

  // What is refused is refused alike on both ways: status, body and the headers that clients act by.
  const big = JSON.stringify({ a: 'x'.repeat(2_000) });
  it.each<[string, number, () => RequestInit]>([
    ['no identity', 401, () => ({ headers: { 'content-type': 'application/json' }, body: '{}' })],
    ['a forged identity', 401, () => ({ headers: headers({ [identityHeader]: 'x.y' }), body: '{}' })],
    ['another media type', 415, () => ({ headers: headers({ 'content-type': 'text/plain' }), body: '{}' })],
    ['too large a body', 413, () => ({ headers: headers(), body: big })],
    ['no JSON', 400, () => ({ headers: headers(), body: '{"a":' })],
    ['not UTF-8', 400, () => ({ headers: headers(), body: Buffer.from('7b2261223a22ff227d', 'hex') })],
    ['prototype poisoning', 400, () => ({ headers: headers(), body: '{"__proto__":{"a":1}}' })],
    ['a constructor', 400, () => ({ headers: headers(), body: '{"constructor":{"prototype":{}}}' })],
    ['escaped poisoning', 400, () => ({ headers: headers(), body: '{"\\u005f_proto_\\u005F":{"a":1}}' })],
    [
      'an escaped constructor',
      400,
      () => ({ headers: headers(), body: '{"\\u0063onstructor":{"prototype":{}}}' }),
    ],
    ['depth', 400, () => ({ headers: headers(), body: `${'['.repeat(200)}${']'.repeat(200)}` })],
  ])('refuses %s with %i as the framework does', async (_what, status, init) => {
    const answer = await ways['door']!({ method: 'POST', ...init() });
    const direct = { status: answer.status, body: await answer.json() };
    const { headers: sent, body } = init();
    const framework = await nebo.services.get(definition.name)!.fastify.inject({
      method: 'POST',
      url: '/v1/echo',
      headers: sent as Record<string, string>,
      payload: body as string,
    });
    expect(direct.status).toBe(status);
    expect(answer.headers.get('x-request-id')).toMatch(/.+/);
    expect(answer.headers.get('www-authenticate')).toBe(framework.headers['www-authenticate'] ?? null);
    expect(direct).toEqual({ status: framework.statusCode, body: framework.json() });
  });

  it('refuses a body of unknown length that grows too large, and keeps the connection usable', async () => {
    const { port: number } = door.address() as AddressInfo;
    const socket = connect(number, '127.0.0.1');
    let seen = '';
    socket.on('data', (data) => (seen += data.toString()));
    socket.on('error', () => undefined);
    const head = Object.entries(headers())
      .map(([name, value]) => `${name}: ${value}\r\n`)
      .join('');
    socket.write(`POST /v1/echo HTTP/1.1\r\nhost: x\r\n${head}transfer-encoding: chunked\r\n\r\n`);
    socket.write(`7d0\r\n${'x'.repeat(2_000)}\r\n0\r\n\r\n`);
    for (let wait = 0; wait < 200 && !seen.includes('payload_too_large'); wait += 1)
      await new Promise((resolve) => setTimeout(resolve, 20));
    expect(seen).toContain('HTTP/1.1 413');
    socket.destroy();
  });

  it('keeps only so much of bodies that are on their way, of one account half of it', async () => {
    const { port: number } = door.address() as AddressInfo;
    const socket = connect(number, '127.0.0.1');
    socket.on('error', () => undefined);
    const head = Object.entries(headers())
      .map(([name, value]) => `${name}: ${value}\r\n`)
      .join('');
    socket.write(`POST /v1/echo HTTP/1.1\r\nhost: x\r\n${head}content-length: 950\r\n\r\n${' '.repeat(900)}`);
    const body = JSON.stringify('x'.repeat(800));
    const send = async (who: Identity) => {
      const sent = headers({ [identityHeader]: nebo.runtime.signer.sign(who) });
      const answer = await ways['door']!({ method: 'POST', headers: sent, body });
      await answer.arrayBuffer();
      return answer.status;
    };
    const turnsTo = async (status: number) => {
      for (let wait = 0; wait < 250 && (await send(caller)) !== status; wait += 1)
        await new Promise((resolve) => setTimeout(resolve, 20));
      return send(caller);
    };
    expect(await turnsTo(503)).toBe(503);
    expect(await send({ ...caller, account_id: '00000000-0000-4000-8000-0000000000a2' } as Identity)).toBe(
      200,
    );
    // One that leaves in its middle gives its room back.
    socket.destroy();
    expect(await turnsTo(200)).toBe(200);
  });

  it('counts what it answers under the operation', async () => {
    await ways['door']!({ method: 'POST', headers: headers(), body: '{}' });
    const text = await (await fetch(`http://127.0.0.1:${await port()}/metrics`)).text();
    expect(text).toMatch(/nebo_http_requests_total\{[^}]*operation="echo",status="200"\} \d+/);
    expect(text).toMatch(/nebo_http_requests_total\{[^}]*operation="echo",status="401"\} \d+/);
  });
});
