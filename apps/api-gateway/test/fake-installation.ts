import { mkdtempSync, rmSync } from 'node:fs';
import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EmbeddedBus } from '@nebo/bus';
import { type Identity, identityHeader, keyForm, type Owner } from '@nebo/contracts';
import {
  Config,
  createRuntime,
  LocalTarget,
  localService,
  RemoteTarget,
  type Runtime,
} from '@nebo/service-kit';
import Fastify, { type FastifyInstance } from 'fastify';
import { pino } from 'pino';
import { createGateway, type Gateway } from '../src/gateway.js';
import { testContract, testInferenceContract } from './test-contract.js';

export const form = keyForm('nebo_live_');
export const inferenceForm = keyForm('neboai_live_');

/** What reached a service. */
export interface Seen {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
  body: string;
}

/**
 * Services that are nothing but recorders behind the real gateway: the gateway is what is tested here. The real services
 * behind it are tested in e2e.
 */
export class FakeInstallation {
  readonly keys = new Map<string, Identity>();
  readonly owners = new Map<string, Owner>();
  readonly seen: Seen[] = [];
  readonly lookups: string[] = [];
  readonly services = new Map<string, FastifyInstance>();
  readonly closed: string[] = [];
  runtime!: Runtime;
  gateway!: Gateway;
  api!: string;
  ai!: string;
  private readonly home = mkdtempSync(join(tmpdir(), 'nebo-gateway-'));
  private apiPort = 0;

  /** @param remote services behind URLs instead of in this process */
  async start(env: Record<string, string> = {}, remote = false): Promise<this> {
    const config = new Config({ NEBO_HOME: this.home, NEBO_API_PORT: '0', NEBO_AI_PORT: '0', ...env });
    const log = pino({ level: 'silent' });
    this.runtime = createRuntime({
      config,
      log,
      adminUrl: 'postgres://nobody@127.0.0.1:1/none',
      bus: new EmbeddedBus(),
    });
    for (const name of ['identity-billing', 'compute', 'apps-builder', 'inference-router']) {
      const service = this.service(name);
      this.services.set(name, service);
      await service.ready();
      if (remote) {
        const url = await service.listen({ port: 0, host: '127.0.0.1' });
        this.runtime.targets.set(name, new RemoteTarget(url));
      } else {
        this.runtime.targets.set(name, new LocalTarget(() => localService(service)));
      }
    }
    this.gateway = createGateway({
      runtime: this.runtime,
      contracts: { control: testContract, inference: testInferenceContract },
      alone: true,
    });
    const { apiPort, aiPort } = await this.gateway.start();
    this.apiPort = apiPort;
    this.api = `http://127.0.0.1:${apiPort}`;
    this.ai = `http://127.0.0.1:${aiPort}`;
    return this;
  }

  get port(): number {
    return this.apiPort;
  }

  private service(name: string): FastifyInstance {
    const service = Fastify({ forceCloseConnections: true });
    service.removeAllContentTypeParsers();
    service.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) => done(null, body));
    service.post<{ Body: string }>('/internal/v1/keys/resolve', (request, reply) => {
      const { hash } = JSON.parse(request.body) as { hash: string };
      this.lookups.push(hash);
      const identity = this.keys.get(hash);
      return identity
        ? { identity }
        : reply.status(404).send({ error: { code: 'not_found', message: 'not found' } });
    });
    service.get<{ Params: { kind: string; id: string } }>(
      '/internal/v1/owners/:kind/:id',
      (request, reply) => {
        const owner = this.owners.get(`${request.params.kind}:${request.params.id}`);
        return owner ?? reply.status(404).send({ error: { code: 'not_found', message: 'not found' } });
      },
    );
    service.get('/healthz', () => ({ ok: true, parts: [] }));
    service.get('/v1/apps/:id/builds/:build/logs', (request, reply) => {
      reply.hijack();
      reply.raw.writeHead(200, { 'content-type': 'text/event-stream' });
      reply.raw.write('data: first\n\n');
      const timer = setInterval(() => reply.raw.write(': keep-alive\n\n'), 20);
      reply.raw.on('close', () => {
        clearInterval(timer);
        this.closed.push(request.url);
      });
    });
    service.all('/*', (request) => {
      this.seen.push({
        method: request.method,
        url: request.url,
        headers: request.headers,
        body: String(request.body ?? ''),
      });
      return { service: name, identity: this.runtime.signer.read(request.headers[identityHeader] as string) };
    });
    return service;
  }

  /** A live key with an identity; without one of its own it may do everything in `account`. */
  addKey(identity: Identity): string {
    const key = (identity.kind === 'inference' ? inferenceForm : form).generate();
    this.keys.set(this.hashOf(key), identity);
    return key;
  }

  hashOf(key: string): string {
    return this.runtime.masterKey.hashKey(key).toString('base64url');
  }

  async stop(): Promise<void> {
    await this.gateway.stop();
    for (const service of this.services.values()) await service.close();
    await this.runtime.targets.close();
    await this.runtime.bus.close();
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** An answer of the door. */
export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  // Tests read whatever came.
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  body: any;
  text: string;
}

/** One request over a real socket; `headers` may hold lists to send a header twice. */
export function send(
  url: string,
  options: { method?: string; headers?: Record<string, string | string[]>; body?: string } = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(url, { method: options.method ?? 'GET', agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk) => (text += chunk));
      response.on('end', () => {
        const json = String(response.headers['content-type'] ?? '').includes('json') && text !== '';
        resolve({
          status: response.statusCode!,
          headers: response.headers,
          text,
          body: json ? JSON.parse(text) : undefined,
        });
      });
    });
    for (const [name, value] of Object.entries(options.headers ?? {})) request.setHeader(name, value);
    request.on('error', reject);
    request.end(options.body);
  });
}
