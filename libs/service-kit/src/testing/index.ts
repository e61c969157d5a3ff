import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EmbeddedBus, type EventBus } from '@nebo/bus';
import { type Identity, identityHeader, type KeyIdentity } from '@nebo/contracts';
import { pino } from 'pino';
import { bootService, type RunningService, type ServiceDefinition } from '../boot.js';
import { Config } from '../config.js';
import { createRuntime, migrateServices } from '../process.js';
import type { Runtime } from '../runtime.js';
import { LocalTarget } from '../target.js';

export * from './row-security.js';

/** Options of `startServices`. */
export interface TestProcessOptions {
  /** An empty database; `freshDatabase()` of the test kit gives one. */
  databaseUrl: string;
  definitions: readonly ServiceDefinition[];
  env?: Record<string, string>;
  bus?: EventBus;
}

/** A request to a service, past the gateway, with the identity that the gateway would have signed. */
export interface TestRequest {
  method?: string;
  path: string;
  /** Null: no identity header at all. */
  as: Identity | null;
  body?: unknown;
  headers?: Record<string, string>;
}

export interface TestAnswer {
  status: number;
  headers: Record<string, unknown>;
  // Tests read whatever the service answered.
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  body: any;
  text: string;
}

/** Services of one process on a real database, for tests. */
export interface TestProcess {
  runtime: Runtime;
  services: Map<string, RunningService>;
  request(service: string, request: TestRequest): Promise<TestAnswer>;
  close(): Promise<void>;
}

/** Migrates and boots services in this process, as `npm start` does, with a data folder of their own. */
export async function startServices(options: TestProcessOptions): Promise<TestProcess> {
  const home = mkdtempSync(join(tmpdir(), 'nebo-test-'));
  const config = new Config({ NEBO_HOME: home, ...options.env });
  const log = pino({ level: process.env['NEBO_TEST_LOG'] ?? 'silent' });
  const bus = options.bus ?? new EmbeddedBus();
  const runtime = createRuntime({ config, log, adminUrl: options.databaseUrl, bus });
  await migrateServices(options.databaseUrl, runtime.masterKey, options.definitions);
  const services = new Map<string, RunningService>();
  for (const definition of options.definitions) {
    runtime.targets.set(definition.name, new LocalTarget(() => services.get(definition.name)!));
  }
  for (const definition of options.definitions)
    services.set(definition.name, await bootService(definition, runtime));
  return {
    runtime,
    services,
    request: async (service, { method = 'GET', path, as, body, headers = {} }) => {
      const answer = await services.get(service)!.fastify.inject({
        method: method as 'GET',
        url: path,
        headers: {
          ...(as ? { [identityHeader]: runtime.signer.sign(as) } : {}),
          ...(body !== undefined && !Buffer.isBuffer(body) ? { 'content-type': 'application/json' } : {}),
          ...headers,
        },
        ...(body === undefined
          ? {}
          : { payload: (Buffer.isBuffer(body) ? body : JSON.stringify(body)) as string }),
      });
      const text = answer.body;
      const isJson = String(answer.headers['content-type'] ?? '').includes('application/json');
      return {
        status: answer.statusCode,
        headers: answer.headers,
        text,
        body: isJson && text ? JSON.parse(text) : undefined,
      };
    },
    close: async () => {
      for (const service of services.values()) await service.close();
      if (!options.bus) await bus.close();
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/** A key identity with everything allowed, to narrow in a test. */
export function keyOf(accountId: string, more: Partial<KeyIdentity> = {}): KeyIdentity {
  return {
    kind: 'key',
    account_id: accountId,
    key_id: '00000000-0000-4000-8000-00000000000a',
    policy: [{ effect: 'allow', actions: ['*'], resources: ['*'] }],
    project_ids: null,
    role: 'owner',
    ...more,
  };
}
