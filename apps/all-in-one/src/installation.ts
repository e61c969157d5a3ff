import { mkdirSync } from 'node:fs';
import { committedContracts, createGateway } from '@nebo/api-gateway';
import { Publisher } from '@nebo/dns';
import { createEdge, edgeSettings, targetRouteSource } from '@nebo/edge';
import type { PartHealth } from '@nebo/service-kit';
import {
  bootService,
  busFrom,
  type Config,
  createRuntime,
  homeOf,
  LocalTarget,
  masterKeyOf,
  migrateServices,
  Peers,
  type RunningService,
  type Runtime,
} from '@nebo/service-kit';
import { startEmbeddedPostgres } from '@nebo/embedded-postgres';
import type { Logger } from 'pino';
import { startAgent } from './agent.js';
import { checkMasterKey, checkPorts, reachableHost } from './before-start.js';
import type { Credentials } from './credentials.js';
import { ensureDemo } from './demo-account.js';
import { takeHome } from './home-lock.js';
import { services } from './services.js';

/** Options of `startInstallation`. */
export interface InstallationOptions {
  config: Config;
  log: Logger;
  onStep?: (text: string) => void;
}

/** Everything, running in this process. */
export interface Installation {
  credentials: Credentials;
  /** What a person should know: what is simulated or not isolated. */
  notes: string[];
  stop(): Promise<void>;
}

type Stop = () => Promise<unknown> | void;

/**
 * Starts PostgreSQL, all services, gateway, agent and edge in this process and makes the demo account.
 * @throws Error with one sentence for the user: a port is taken, a setting is wrong, the data folder is broken or in use
 */
export async function startInstallation({
  config,
  log,
  onStep = () => undefined,
}: InstallationOptions): Promise<Installation> {
  const home = homeOf(config);
  const stops: Stop[] = [];
  const stop = async () => {
    for (const end of stops.splice(0).reverse()) {
      await Promise.resolve(end()).catch((err: unknown) => log.error({ err }, 'a part did not stop cleanly'));
    }
  };
  try {
    await checkPorts(config);
    mkdirSync(home, { recursive: true, mode: 0o711 });
    stops.push(takeHome(home));
    checkMasterKey(config, home);
    const masterKey = masterKeyOf(config);
    const adminUrl = await database(config, home, masterKey.rolePassword('postgres'), stops, onStep);
    const bus = await busFrom(config, log);
    stops.push(() => bus.close());
    const runtime = createRuntime({ config, log, adminUrl, bus });
    stops.push(() => runtime.targets.close());
    onStep('migrating');
    await migrateServices(adminUrl, masterKey, services);
    onStep('starting services');
    const running = await bootAll(runtime, stops);
    return { ...(await openDoors(runtime, running, stops, onStep)), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function database(
  config: Config,
  home: string,
  password: string,
  stops: Stop[],
  onStep: (text: string) => void,
): Promise<string> {
  if (config.optional('DATABASE_URL'))
    return config.url('DATABASE_URL', undefined, ['postgres:', 'postgresql:']);
  onStep('starting PostgreSQL');
  const postgres = await startEmbeddedPostgres(home, password);
  stops.push(() => postgres.stop());
  return postgres.url;
}

async function bootAll(runtime: Runtime, stops: Stop[]): Promise<Map<string, RunningService>> {
  const running = new Map<string, RunningService>();
  for (const { name } of services) runtime.targets.set(name, new LocalTarget(() => running.get(name)!));
  for (const definition of services) {
    const service = await bootService(definition, runtime);
    running.set(definition.name, service);
    stops.push(() => service.close());
  }
  return running;
}

async function openDoors(
  runtime: Runtime,
  running: ReadonlyMap<string, RunningService>,
  stops: Stop[],
  onStep: (text: string) => void,
): Promise<Omit<Installation, 'stop'>> {
  const { config, home, log } = runtime;
  const peers = new Peers(runtime, 'all-in-one');
  const parts: PartHealth[] = [
    { name: 'region-agent', ok: false, required: true, detail: 'starting' },
    { name: 'edge', ok: false, required: true, detail: 'starting' },
    { name: 'demo account', ok: false, required: true, detail: 'starting' },
  ];
  const ready = (name: string) => {
    const part = parts.find((candidate) => candidate.name === name)!;
    part.ok = true;
    delete part.detail;
  };
  const gateway = createGateway({
    runtime,
    contracts: committedContracts(),
    alone: true,
    parts: () => parts,
  });
  const { apiPort, aiPort } = await gateway.start();
  stops.push(() => gateway.stop());

  onStep('starting region agent and edge');
  // First, and so stopped last: the edge lets requests end on replicas that still run.
  const here = reachableHost(config);
  const agent = await startAgent(runtime, peers, `http://${here}:${apiPort}`);
  stops.push(() => agent.stop());
  ready('region-agent');
  const edge = createEdge({
    ...edgeSettings(config.env),
    home,
    host: config.text('NEBO_BIND', '127.0.0.1'),
    registry: runtime.figures,
    wake: agent.desk,
    source: targetRouteSource(runtime.targets.get('apps-builder'), runtime.signer),
    logger: log.child({ service: 'edge' }),
  });
  const { port, tlsPort } = await edge.start();
  stops.push(() => edge.stop());
  ready('edge');

  const { credentials, aside } = await ensureDemo(home, peers, {
    base_url: `http://${here}:${apiPort}/v1`,
    ai_url: `http://${here}:${aiPort}`,
    edge_url: `http://${here}:${port}`,
    edge_tls_url: `https://${here}:${tlsPort}`,
    dns_address: `${reachableHost(config, 'NEBO_DNS_BIND')}:${running.get('dns')!.app.get(Publisher).port}`,
  });
  ready('demo account');
  return { credentials, notes: [...demoNotes(aside), ...agent.notes, ...modelNotes(config)] };
}

function demoNotes(aside: string | null): string[] {
  if (aside === null) return [];
  return [
    `the database does not know the former demo account; a new one was made, the former keys are in ${aside}`,
  ];
}

function modelNotes(config: Config): string[] {
  if (config.optional('NEBO_INFERENCE_CONFIG')) return [];
  return [
    'models are answered by the built-in simulator; NEBO_INFERENCE_CONFIG names a file with real providers',
  ];
}
