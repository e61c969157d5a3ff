import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { identityHeader, type InferenceIdentity, sliceRecall } from '@nebo/contracts';
import { startServices, type TestProcess } from '@nebo/service-kit/testing';
import { freshDatabase, startUpstreamModel, type UpstreamModel } from '@nebo/test-kit';
import pg from 'pg';
import { inferenceRouter } from '../src/inference-router.module.js';
import { Purses } from '../src/money/purses.js';
import { Settlements } from '../src/money/settlements.js';
import { FakeBilling } from './fake-billing.js';

/** An account with a million rubles, and its key. */
export const account = '00000000-0000-4000-8000-0000000000a1';
export const keyId = '00000000-0000-4000-8000-0000000000b1';
export const caller: InferenceIdentity = {
  kind: 'inference',
  account_id: account,
  key_id: keyId,
  models: null,
  monthly_limit: null,
};
export const plenty = 1_000_000_000_000_000n;

/** Models, upstreams and dialects of the tests; `{url}` stands for the programmable upstream. */
export const testConfig = `
providers:
  plain: { base_url: "{url}", dialect: openai, api_key_env: TEST_VENDOR_KEY }
  glm: { base_url: "{url}", dialect: zhipu }
  kimi: { base_url: "{url}", dialect: moonshot }
  ali: { base_url: "{url}", dialect: qwen }
  deep: { base_url: "{url}", dialect: deepseek }
  xiaomi: { base_url: "{url}", dialect: mimo }
  mini: { base_url: "{url}", dialect: minimax }
models:
  glm-5.3: { upstreams: [{ provider: glm, model: vendor-glm }], price: { input: "60.00", cache_read: "12.00", output: "240.00" } }
  glm-5.2: { upstreams: [{ provider: glm }] }
  glm-5v-turbo: { upstreams: [{ provider: glm }] }
  kimi-k3: { upstreams: [{ provider: kimi }] }
  qwen3.8-max: { upstreams: [{ provider: ali }] }
  qwen3-coder-next: { upstreams: [{ provider: plain }] }
  deepseek-v4-pro: { upstreams: [{ provider: deep }] }
  deepseek-v4.1-flash: { upstreams: [{ provider: deep }] }
  mimo-v2.6-pro: { upstreams: [{ provider: xiaomi }] }
  minimax-m3: { upstreams: [{ provider: mini }] }
`;

export interface Router {
  nebo: TestProcess;
  /** `http://127.0.0.1:<port>`: signs as `identity` and hands on to the service, as the gateway does. */
  url: string;
  /** Whom the front signs for. */
  identity: InferenceIdentity;
  billing: FakeBilling;
  upstream: UpstreamModel;
  /** Rows of a table, past row-level security. */
  rows<R = Record<string, unknown>>(sql: string): Promise<R[]>;
  /** Sends a chat request. */
  chat(
    body: Record<string, unknown>,
    more?: { signal?: AbortSignal; headers?: Record<string, string> },
  ): Promise<Response>;
  stop(): Promise<void>;
}

/** What a router needs around it, so that several may be started on the same. */
export interface Ground {
  databaseUrl: string;
  billing: FakeBilling;
  upstream: UpstreamModel;
}

export async function startGround(): Promise<Ground> {
  const billing = await new FakeBilling().start();
  billing.account(account, plenty);
  return { databaseUrl: await freshDatabase(), billing, upstream: await startUpstreamModel() };
}

/** Starts the service with an upstream, a billing and a signing front. `config` null: without a file. */
export async function startRouter(
  options: { config?: string | null; env?: Record<string, string>; ground?: Ground } = {},
): Promise<Router> {
  const ground = options.ground ?? (await startGround());
  const { databaseUrl, billing, upstream } = ground;
  const folder = mkdtempSync(join(tmpdir(), 'nebo-router-'));
  const file = join(folder, 'inference.yaml');
  const config = options.config === undefined ? testConfig : options.config;
  if (config !== null) writeFileSync(file, config.replaceAll('{url}', upstream.url));
  const nebo = await startServices({
    databaseUrl,
    definitions: [inferenceRouter],
    env: {
      NEBO_IDENTITY_BILLING_URL: billing.url,
      TEST_VENDOR_KEY: 'vendor-secret-key',
      // Specs that provoke failures one after the other must not find the route closed; the breaker's own turn it on.
      NEBO_UPSTREAM_BREAKER_FAILURES: '0',
      ...(config === null ? {} : { NEBO_INFERENCE_CONFIG: file }),
      ...options.env,
    },
  });
  const router = { nebo, billing, upstream, identity: caller } as Router;
  const { app } = nebo.services.get('inference-router')!;
  const unwatch = billing.watch(app.get(Settlements), app.get(Purses));
  const recall = billing.slices.onRecall;
  billing.slices.onRecall = (data) => {
    recall(data);
    void nebo.runtime.bus.publish([sliceRecall(data)]).catch(() => undefined);
  };
  const server = startFront(router);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  router.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  router.rows = (sql) => readRows(databaseUrl, sql);
  router.chat = (body, more = {}) =>
    fetch(`${router.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...more.headers },
      body: JSON.stringify(body),
      ...(more.signal ? { signal: more.signal } : {}),
    });
  router.stop = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await nebo.close();
    await nebo.runtime.targets.close();
    unwatch();
    rmSync(folder, { recursive: true, force: true });
    if (!options.ground) {
      await billing.stop();
      await upstream.stop();
    }
  };
  return router;
}

function startFront(router: Router): Server {
  return createServer((request, response) => {
    request.headers[identityHeader] = router.nebo.runtime.signer.sign(router.identity);
    router.nebo.services.get('inference-router')!.handle(request, response);
  });
}

async function readRows<R>(databaseUrl: string, sql: string): Promise<R[]> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    await client.query('set search_path to inference_router');
    return (await client.query(sql)).rows as R[];
  } finally {
    await client.end();
  }
}

/** JSON of the events of a stream, '[DONE]' and comments as they are. */
export function eventsOf(text: string): (string | Record<string, never>)[] {
  return text
    .split('\n\n')
    .filter(Boolean)
    .map((event) => (/^data: \{/.test(event) ? JSON.parse(event.slice(6)) : event.replace(/^data: /, '')));
}

/** Waits until `probe` gives something. */
export async function until<T>(
  probe: () => T | Promise<T>,
  what: string,
  limit = 8_000,
): Promise<NonNullable<T>> {
  const end = Date.now() + limit;
  for (;;) {
    const found = await probe();
    if (found) return found as NonNullable<T>;
    if (Date.now() > end) throw new Error(`not in time: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A caller of its own account, with so much money. */
export function newCaller(
  billing: FakeBilling,
  available: bigint = plenty,
  more: Partial<InferenceIdentity> = {},
): InferenceIdentity {
  const id = randomUUID();
  billing.account(id, available);
  return { ...caller, account_id: id, key_id: randomUUID(), ...more };
}

/** An upstream that sends one piece and then nothing any more. */
export function hangInTheMiddle(_request: unknown, response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'x' } }] })}\n\n`);
}
