import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { keyChanged, keyForm, OperationTable } from '@nebo/contracts';
import {
  type Config,
  drainOf,
  type HealthReport,
  inferenceErrorBody,
  type PartHealth,
  Peers,
  readText,
  type Runtime,
} from '@nebo/service-kit';
import { AgentDoor } from './agents/agent-door.js';
import { type DocumentedContract } from './docs/docs-page.js';
import { OwnAnswers } from './docs/own-answers.js';
import { AiDoor } from './door/ai-door.js';
import { ControlDoor } from './door/control-door.js';
import { HookDoor } from './door/hook-door.js';
import { Cors } from './door/cors.js';
import { guard, type GuardOptions } from './door/head.js';
import { OpenStreams } from './door/open-streams.js';
import { KeyCache } from './keys/key-cache.js';
import { LeasedRateLimiter, leaseFrom, MemoryRateLimiter, type RateLimiter } from './limits/rate-limiter.js';
import { DoorMetrics } from './observe/door-metrics.js';
import { tracer } from './trace/tracer.js';
import { OperatorDoor } from './operator/operator-door.js';
import { OwnerCache } from './policy/owner-cache.js';

/** The committed contracts that the gateway routes by. */
export interface GatewayContracts {
  control: DocumentedContract;
  inference: DocumentedContract;
}

/** The contracts as they are committed in libs/contracts. */
export function committedContracts(): GatewayContracts {
  const read = (name: string) =>
    JSON.parse(
      readFileSync(fileURLToPath(import.meta.resolve(`@nebo/contracts/openapi/${name}.json`)), 'utf8'),
    ) as DocumentedContract;
  return { control: read('v1'), inference: read('inference') };
}

/** Options of `createGateway`. */
export interface GatewayOptions {
  runtime: Runtime;
  contracts: GatewayContracts;
  /** Alone: the only gateway of the installation, so counters may stay in memory. */
  alone: boolean;
  /** Parts of this process that `/healthz` shows beside the services. */
  parts?: () => PartHealth[];
}

export interface Gateway {
  /** @throws Error with one sentence when a port is taken */
  start(): Promise<{ apiPort: number; aiPort: number }>;
  /** Forgets what it holds of keys; an event does this by itself. */
  forgetKeys(): void;
  stop(): Promise<void>;
}

/** The public door of the installation: two listeners, no framework in the way of a forwarded request. */
export function createGateway({ runtime, contracts, alone, parts = () => [] }: GatewayOptions): Gateway {
  const { config, targets, signer, masterKey } = runtime;
  const log = runtime.log.child({ service: 'api-gateway' });
  const peers = new Peers(runtime, 'api-gateway');
  const keys = new KeyCache(peers, masterKey, signer);
  const metrics = new DoorMetrics();
  const limiterFor = (setting: string, fallback: string): RateLimiter | null => {
    const rate = config.rate(setting, fallback);
    if (!rate) return null;
    return alone
      ? new MemoryRateLimiter(rate.requests, rate.seconds)
      : new LeasedRateLimiter(rate.requests, rate.seconds, leaseFrom(peers, rate.requests, rate.seconds));
  };
  const onError = (err: unknown, request: IncomingMessage) => {
    log.error(
      {
        err: (err as Error).cause ?? err,
        path: request.url?.split('?')[0],
        request_id: request.headers['x-request-id'],
      },
      'request failed',
    );
  };
  const { traced, done } = tracer(config.env);
  const onDone = (operation: string, response: ServerResponse, startedAt: number) => {
    done(operation, response);
    metrics.observe(operation, response.statusCode, (performance.now() - startedAt) / 1000);
  };
  const form = keyForm(config.text('NEBO_KEY_PREFIX', 'nebo_live_'));
  const inferenceForm = keyForm(config.text('NEBO_INFERENCE_KEY_PREFIX', 'neboai_live_'));
  const streams = new OpenStreams();
  const control = new ControlDoor({
    table: new OperationTable(contracts.control),
    keys,
    owners: new OwnerCache(peers),
    limiter: limiterFor('NEBO_RATE_LIMIT', '1200/60'),
    targets,
    agents: new AgentDoor(peers, targets, signer),
    hooks: new HookDoor(targets, signer),
    operator: new OperatorDoor(masterKey, targets, signer),
    streams,
    cors: new Cors(config.list('NEBO_CORS_ORIGINS')),
    isControlKey: form.matches,
    own: new OwnAnswers(
      contracts.control,
      () => health(runtime, peers, parts),
      // The doors' figures, and those of all services that run in this process.
      async () => (await metrics.text()) + (await runtime.figures.metrics()),
    ).handle,
    onError,
    onDone,
  });
  const ai = new AiDoor({
    table: new OperationTable(contracts.inference),
    keys,
    limiter: limiterFor('NEBO_AI_RATE_LIMIT', '0'),
    targets,
    isInferenceKey: inferenceForm.matches,
    errorShape: inferenceErrorBody,
    onError,
    onDone,
  });
  const stall = { stallMs: config.int('NEBO_BODY_IDLE_MS', 60_000, { min: 1 }) };
  const servers = {
    api: doorServer(traced('control', control.handle), stall),
    ai: doorServer(traced('inference', ai.handle), { ...stall, shape: inferenceErrorBody }),
  };
  let unsubscribe: (() => Promise<void>) | undefined;
  return {
    start: async () => {
      const subscription = await runtime.bus.subscribeAll(keyChanged.subject, (event) => {
        keys.forget((event.data as { hash?: string }).hash ?? null);
        streams.look();
      });
      unsubscribe = () => subscription.close();
      const bind = config.text('NEBO_BIND', '127.0.0.1');
      return {
        apiPort: await listen(servers.api.server, config, 'NEBO_API_PORT', 4000, bind),
        aiPort: await listen(servers.ai.server, config, 'NEBO_AI_PORT', 4001, bind),
      };
    },
    forgetKeys: () => keys.forget(null),
    stop: async () => {
      await unsubscribe?.();
      await Promise.all([servers.api.end(), servers.ai.end()]);
    },
  };
}

/** A door's server, and what lets its requests in flight finish for a while; streams without end are cut. */
function doorServer(
  handler: (request: IncomingMessage, response: ServerResponse) => void,
  options: GuardOptions,
): { server: Server; end: () => Promise<void> } {
  const server = createServer({
    keepAliveTimeout: 75_000,
    headersTimeout: 30_000,
    connectionsCheckingInterval: 5_000,
    requestTimeout: 0,
    requireHostHeader: false,
  });
  guard(server, handler, options);
  const drain = drainOf(server);
  const end = () =>
    new Promise<void>((resolve) => {
      drain();
      server.close(() => resolve());
    });
  return { server, end };
}

/**
 * Listens on the port of a setting.
 * @throws Error one line, naming the setting, when the port is taken
 */
export async function listen(
  server: Server,
  config: Config,
  setting: string,
  fallback: number,
  bind: string,
): Promise<number> {
  const port = config.port(setting, fallback);
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(
        error.code === 'EADDRINUSE'
          ? new Error(`port ${port} is taken; choose another with ${setting}`)
          : error,
      );
    });
    server.listen(port, bind, resolve);
  });
  return (server.address() as AddressInfo).port;
}

async function health(runtime: Runtime, peers: Peers, parts: () => PartHealth[]): Promise<HealthReport> {
  const services = await Promise.all(
    runtime.targets.names().map(async (name): Promise<PartHealth> => {
      try {
        const answer = await peers.raw(name, '/healthz', { account: null });
        const report = JSON.parse(await readText(answer.body)) as HealthReport;
        const detail = report.parts
          .filter((part) => !part.ok)
          .map((part) => `${part.name}: ${part.detail ?? 'down'}`)
          .join('; ');
        return { name, ok: report.ok, required: true, ...(detail ? { detail } : {}) };
      } catch (error) {
        return { name, ok: false, required: true, detail: (error as Error).message };
      }
    }),
  );
  const all = [...services, ...parts()];
  return { ok: all.every((part) => part.ok || !part.required), parts: all };
}
