import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  type ArgumentsHost,
  Catch,
  type DynamicModule,
  type ExceptionFilter,
  type INestApplication,
  type Type,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import { identityHeader, type Identity } from '@nebo/contracts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Logger } from 'pino';
import {
  ApiError,
  type ErrorAnswer,
  errorAnswer,
  mayDrain,
  notFound,
  unauthorized,
  unsupportedMediaType,
} from './errors.js';
import type { Heard } from '@nebo/bus';
import { isConfigured } from '@nebo/telemetry';
import { BodyRoom } from './body-room.js';
import { drainOf } from './drain.js';
import { directFront, type DirectOperations, type Front } from './direct.js';
import { HealthRegistry, type HealthReport } from './health.js';
import { jsonText } from './json-body.js';
import { KitModule } from './kit.module.js';
import { METRICS, type Runtime } from './runtime.js';
import { Turns } from './turns.js';
import { ContractPipe } from './validation.js';

/** A service as a process starts it: alone (`src/main.ts`) or with others (`apps/all-in-one`). */
export interface ServiceDefinition {
  name: string;
  module: Type<unknown> | DynamicModule;
  /** Folder of the service's migrations. */
  migrations: URL;
  /** Which identity paths under `/v1/` need; control keys unless told otherwise. */
  doorIdentity?: 'key' | 'inference';
  /** Paths that need no identity, beside health and metrics. */
  publicPaths?: readonly string[];
  /** All that the service hears (its `events.ts`). */
  hears?: readonly Heard[];
  /** Largest JSON body, bytes. */
  bodyLimit?: number;
  /** Shape of error bodies where it is not the control API's, as `inferenceErrorBody`; gets the request's path. */
  errorBody?: (path: string, answer: ErrorAnswer) => object;
  /** Operations that are answered past the framework. */
  direct?: DirectOperations;
}

/** A service that runs. */
export interface RunningService {
  name: string;
  app: INestApplication;
  fastify: FastifyInstance;
  /** Answers a request that a door of this process hands on. */
  handle(request: IncomingMessage, response: ServerResponse): void;
  health(): Promise<HealthReport>;
  /** Listens for the split form. @returns the port */
  listen(port: number, host?: string): Promise<number>;
  close(): Promise<void>;
}

const mebibyte = 1024 * 1024;

/** A client's own headers, 16 KiB, and the identity of a key with the largest policy and allow-list beside them. */
const headBytes = 64 * 1024;

/** Creates a service's application, ready to take requests, without listening. */
export async function bootService(definition: ServiceDefinition, runtime: Runtime): Promise<RunningService> {
  const log = runtime.log.child({ service: definition.name });
  let front: Front = () => false;
  const adapter = new FastifyAdapter({
    serverFactory: (rest: (request: IncomingMessage, response: ServerResponse) => void) =>
      createServer({ maxHeaderSize: headBytes }, (request, response) => {
        if (!front(request, response)) rest(request, response);
      }),
    bodyLimit: definition.bodyLimit ?? mebibyte,
    logger: false,
    genReqId: (request) => headerText(request.headers['x-request-id']) ?? randomUUID(),
    forceCloseConnections: false,
    // What comes on a kept connection while others end is answered as ever: the database is closed after that.
    return503OnClosing: false,
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: 300 },
    // What the router cannot decode, or finds too long, is no id of anything.
    frameworkErrors: (_error: unknown, request: FastifyRequest, reply: FastifyReply) => {
      const answer = errorAnswer(notFound(), String(request.id));
      void reply
        .status(answer.status)
        .headers(answer.headers)
        .send(definition.errorBody?.(request.url, answer) ?? answer.body);
    },
  } as ConstructorParameters<typeof FastifyAdapter>[0]);
  const app = await NestFactory.create<NestFastifyApplication>(
    KitModule.forService(definition, runtime),
    adapter,
    { logger: false, abortOnError: false, bodyParser: false },
  );
  const fastify = adapter.getInstance() as unknown as FastifyInstance;
  const drain = drainOf(fastify.server);
  fastify.addHook('preClose', (done) => {
    drain();
    done();
  });
  installParsers(fastify);
  installIdentity(fastify, definition, runtime);
  app.useGlobalPipes(new ContractPipe());
  app.useGlobalFilters(new ErrorFilter(log, definition.errorBody));
  await app.init();
  await fastify.ready();
  front = frontOf(definition, runtime, app, fastify) ?? front;
  return {
    name: definition.name,
    app,
    fastify,
    handle: (request, response) => {
      if (!front(request, response)) fastify.routing(request, response);
    },
    health: () => app.get(HealthRegistry).report(),
    listen: async (port, host = '127.0.0.1') => {
      await app.listen(port, host);
      return (app.getHttpServer().address() as AddressInfo).port;
    },
    close: () => app.close(),
  };
}

function frontOf(
  definition: ServiceDefinition,
  runtime: Runtime,
  app: INestApplication,
  fastify: FastifyInstance,
): Front | null {
  const { direct, errorBody } = definition;
  if (!direct) return null;
  return directFront({
    operations: direct,
    handler: app.get(direct.handler, { strict: false }),
    door: definition.doorIdentity ?? 'key',
    bodyLimit: definition.bodyLimit ?? mebibyte,
    fastify,
    metrics: app.get(METRICS, { strict: false }),
    runtime,
    traced: isConfigured(runtime.config.env),
    service: definition.name,
    errorBody: errorBody ?? ((_path, answer) => answer.body),
    turns: new Turns(),
    room: new BodyRoom(runtime.config.int('NEBO_BODY_MEMORY', 512 * mebibyte, { min: 1 })),
  });
}

const headerText = (value: string | string[] | undefined) =>
  typeof value === 'string' && /^[\w.:-]{1,128}$/.test(value) ? value : undefined;

/**
 * Bodies: JSON, where an empty one is legal although the header is there (clients send it on every request), and the
 * media type that an upload declares, which reaches its handler as a stream.
 */
function installParsers(fastify: FastifyInstance): void {
  fastify.removeAllContentTypeParsers();
  fastify.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    if (body.length === 0) return done(null, undefined);
    let text: string;
    try {
      text = jsonText(body as Buffer);
    } catch (error) {
      return done(error as ApiError);
    }
    // Fastify's own parser refuses prototype poisoning.
    return fastify.getDefaultJsonParser('error', 'error')(request, text, done);
  });
  fastify.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
  fastify.addHook('preParsing', (request, _reply, payload, done) => {
    const length = request.headers['content-length'];
    const hasBody =
      request.headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
    if (!hasBody) return done(null, payload);
    const wanted = uploadType(request) ?? 'application/json';
    const given = (request.headers['content-type'] ?? '').split(';')[0]!.trim().toLowerCase();
    return given === wanted ? done(null, payload) : done(unsupportedMediaType(wanted), payload);
  });
}

function uploadType(request: FastifyRequest): string | undefined {
  const config = request.routeOptions.config as { upload?: string } | undefined;
  return config?.upload;
}

/** Nobody is trusted: every path needs the identity of its door, signed by this installation. */
function installIdentity(fastify: FastifyInstance, definition: ServiceDefinition, runtime: Runtime): void {
  const open = new Set(['/healthz', '/metrics', ...(definition.publicPaths ?? [])]);
  const door = definition.doorIdentity ?? 'key';
  fastify.decorateRequest('identity', null);
  fastify.decorate('masterKey', runtime.masterKey);
  fastify.addHook('onRequest', (request, reply, done) => {
    reply.header('x-request-id', request.id);
    const path = request.url.split('?', 1)[0]!;
    if (open.has(path)) return done();
    const identity = runtime.signer.read(headerOf(request, identityHeader));
    const wanted: Identity['kind'] = path.startsWith('/internal/')
      ? 'service'
      : path.startsWith('/agent/')
        ? 'agent'
        : door;
    if (identity?.kind !== wanted) return done(unauthorized());
    request.identity = identity;
    return done();
  });
}

const headerOf = (request: FastifyRequest, name: string) => {
  const value = request.headers[name];
  return typeof value === 'string' ? value : undefined;
};

/** The one place where a service turns what was thrown into an answer; the inside goes to the log. */
@Catch()
class ErrorFilter implements ExceptionFilter {
  constructor(
    private readonly log: Logger,
    private readonly errorBody: ServiceDefinition['errorBody'],
  ) {}

  catch(error: unknown, host: ArgumentsHost): void {
    const http = host.switchToHttp();
    const request = http.getRequest<FastifyRequest>();
    const reply = http.getResponse<FastifyReply>();
    const answer = errorAnswer(error, String(request.id));
    if (answer.status >= 500) {
      const cause = error instanceof ApiError ? (error.cause ?? error) : error;
      this.log.error(
        { err: cause, request_id: request.id, path: request.url.split('?')[0] },
        'request failed',
      );
    }
    if (reply.raw.headersSent) {
      // A stream that fails in its middle must not look complete.
      reply.raw.destroy();
      return;
    }
    const body = this.errorBody?.(request.url, answer) ?? answer.body;
    if (!request.raw.complete && mayDrain(request.headers)) {
      // Fastify would close the connection under a client that is still sending.
      reply.removeHeader('connection');
      request.raw.resume();
    }
    void reply.status(answer.status).headers(answer.headers).send(body);
  }
}
