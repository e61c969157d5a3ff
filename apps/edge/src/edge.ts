import { join } from 'node:path';
import { artifactLimits, extractArchive } from '@nebo/archive';
import { type WakeDesk } from '@nebo/contracts';
import { createSafeClient, type SafeClient } from '@nebo/safe-net';
import { Registry } from 'prom-client';
import { ArtifactStore, type Extract } from './artifacts/artifact-store.js';
import { AcmeChallenges } from './http/acme-challenges.js';
import { RequestHandler } from './http/handler.js';
import { wildcardOf } from './http/host.js';
import { type Http2Limits } from './http/http2.js';
import { createListener, createSecureListener } from './http/listener.js';
import { type AccessHook } from './observe/access.js';
import { type EdgeLogger, silentLogger } from './observe/logger.js';
import { createMetrics } from './observe/metrics.js';
import { createWakeMetrics } from './observe/wake-metrics.js';
import { Proxy } from './proxy/proxy.js';
import { RouteFile } from './routes/route-file.js';
import { type RouteSource } from './routes/route-source.js';
import { type AppliedListener, Synchronizer, type SyncTimes } from './routes/synchronizer.js';
import { Elsewhere } from './rules/elsewhere.js';
import { FileCache } from './static/file-cache.js';
import { type CertificateSource } from './tls/certificate-source.js';
import { SecureContexts } from './tls/contexts.js';
import { LocalCa } from './tls/local-ca.js';
import { PlatformCertificates } from './tls/platform-certificates.js';
import { Waker, type WakeTimes } from './wake/waker.js';

/** Times, sizes and counts; milliseconds and bytes. */
export interface EdgeTuning extends SyncTimes, WakeTimes, Http2Limits {
  connectTimeoutMs: number;
  answerTimeoutMs: number;
  /** So many answers of apps are given a content coding at once (half a megabyte each); 0: none. */
  codedAnswers: number;
  headersTimeoutMs: number;
  keepAliveMs: number;
  /** A request's body of which nothing comes for so long has stalled. */
  bodyStallMs: number;
  /** Time for running answers when the edge stops. */
  stopGraceMs: number;
  /** A download without a byte for so long has failed. */
  stallMs: number;
  compressBudgetMs: number;
  /** Small files in memory, all together and each. */
  cacheBytes: number;
  cacheFileBytes: number;
  keepUnused: number;
  keepMs: number;
}

export const edgeDefaults: Readonly<EdgeTuning> = {
  waitMs: 30_000,
  fullEveryMs: 300_000,
  idlePauseMs: 1_000,
  maxBackoffMs: 5_000,
  connectTimeoutMs: 5_000,
  answerTimeoutMs: 300_000,
  codedAnswers: 256,
  headersTimeoutMs: 15_000,
  keepAliveMs: 30_000,
  bodyStallMs: 60_000,
  stopGraceMs: 8_000,
  stallMs: 30_000,
  compressBudgetMs: 1_500,
  cacheBytes: 64 * 1024 * 1024,
  cacheFileBytes: 256 * 1024,
  keepUnused: 20,
  keepMs: 60_000,
  wakeQueue: 200,
  wakeQueueTotal: 2_000,
  wakeTimeoutMs: 150_000,
  wakePatienceMs: 10_000,
  http2Streams: 128,
  http2ResetBurst: 200,
  http2ResetRate: 50,
  http2SessionMemory: 32,
};

export interface EdgeOptions {
  /** NEBO_HOME: `edge/` and `ca/` are made in it. */
  home: string;
  source: RouteSource;
  /** 0 for any free one; default 8080. */
  port?: number;
  /** 0 for any free one; default 8443. */
  tlsPort?: number;
  /** Address to listen on; default all. */
  host?: string;
  /** Default `apps.localhost`. */
  appsDomain?: string;
  /** Asked before the local CA. */
  certificates?: CertificateSource[];
  /** Metrics go here; default a registry of its own. */
  registry?: Registry;
  logger?: EdgeLogger;
  /** Called once per answered request. */
  onAccess?: AccessHook;
  tuning?: Partial<EdgeTuning>;
  /** For rewrites that lead outside; default one that reaches public addresses only, whatever the operator allows elsewhere. */
  outside?: SafeClient;
  /** The region's agent, which wakes apps that sleep; absent: nobody does. */
  wake?: WakeDesk;
  /** Unpacks artifacts; default `extractArchive` with `artifactLimits`. */
  extract?: Extract;
}

export interface EdgeStatus {
  state: 'new' | 'running' | 'stopping' | 'stopped';
  /** Something is known to serve: from the control plane or from disk. */
  ready: boolean;
  port: number | null;
  tlsPort: number | null;
  /** Version of the routes being served. */
  version: string | null;
  hosts: number;
  /** ISO time of the last answer of the control plane in this process. */
  fetchedAt: string | null;
  /** Why the last fetch failed; null when it did not. */
  lastError: string | null;
  /** Static routes whose artifact is not here yet. */
  pending: { host: string; app_id: string; artifact_sha256: string; reason: string | null }[];
  artifacts: { count: number; bytes: number };
}

export interface Edge {
  /** Reads the stored routes, listens, and starts asking the control plane, without waiting for it. */
  start(): Promise<{ port: number; tlsPort: number }>;
  /** Lets running answers end (`stopGraceMs`), then cuts what is left. May be called twice. */
  stop(): Promise<void>;
  /** Asks the control plane at once: a hint that routes have changed. Resolves when its answer is applied or has failed. */
  refresh(): Promise<void>;
  /** Calls back with routes that are live from now on; the answer removes the listener. */
  onApplied(listener: AppliedListener): () => void;
  /** The local CA's certificate as PEM. */
  caPem(): Promise<string>;
  status(): EdgeStatus;
}

/** Makes an edge: a server of app domains over HTTP and TLS from an atomic snapshot of routes. */
export function createEdge(options: EdgeOptions): Edge {
  const tuning: EdgeTuning = { ...edgeDefaults, ...options.tuning };
  const logger = options.logger ?? silentLogger;
  const registry = options.registry ?? new Registry();
  const metrics = createMetrics(registry);
  const appsDomain = (options.appsDomain ?? 'apps.localhost').toLowerCase();
  const folder = join(options.home, 'edge');
  const extract: Extract =
    options.extract ?? ((file, target) => extractArchive(file, target, { limits: artifactLimits }));

  const store = new ArtifactStore({
    dir: join(folder, 'artifacts'),
    fetch: (sha256, signal) => options.source.fetchArtifact(sha256, signal),
    extract,
    logger,
    stallMs: tuning.stallMs,
    compressBudgetMs: tuning.compressBudgetMs,
    keepUnused: tuning.keepUnused,
    keepMs: tuning.keepMs,
  });
  const sync = new Synchronizer(
    options.source,
    store,
    new RouteFile(join(folder, 'routes.json'), logger),
    join(folder, 'id'),
    tuning,
    logger,
    metrics,
  );
  const ca = new LocalCa(join(options.home, 'ca'), appsDomain);
  const certificates = new PlatformCertificates(
    join(folder, 'certificates'),
    options.source,
    (host) => sync.snapshot?.find(host)?.route,
    (host) => {
      contexts.forget(host);
      secure.retire((name) => name === host || wildcardOf(name) === host);
    },
    logger,
  );
  const contexts = new SecureContexts(
    [...(options.certificates ?? []), certificates, ca],
    (host) => sync.snapshot?.find(host) !== undefined,
    appsDomain,
    logger,
  );
  sync.onApplied((_version, routes) => certificates.prepare(routes));
  const proxy = new Proxy(tuning, metrics);
  const waker = new Waker({
    desk: options.wake ?? null,
    times: tuning,
    metrics: createWakeMetrics(registry),
    connect: () => proxy.connect(),
  });
  let state: EdgeStatus['state'] = 'new';
  let ports: { port: number; tlsPort: number } | null = null;
  let stopping: Promise<void> | null = null;

  const handler = new RequestHandler({
    snapshot: () => sync.snapshot,
    cache: new FileCache(tuning.cacheBytes, tuning.cacheFileBytes),
    proxy,
    proxyOptions: tuning,
    outside: new Elsewhere(options.outside ?? createSafeClient()),
    challenges: new AcmeChallenges(options.source, logger),
    waker,
    metrics,
    logger,
    onAccess: options.onAccess,
    draining: () => state === 'stopping',
  });
  const { headersTimeoutMs, keepAliveMs, bodyStallMs } = tuning;
  const plain = createListener({ handler, metrics, headersTimeoutMs, keepAliveMs, bodyStallMs });
  const secure = createSecureListener({
    handler,
    metrics,
    headersTimeoutMs,
    keepAliveMs,
    bodyStallMs,
    http2: tuning,
    secureContext: (servername) => contexts.forServerName(servername),
  });

  const stop = async (): Promise<void> => {
    state = 'stopping';
    const cut = setTimeout(
      () => handler.openWebSockets.forEach((socket) => socket.destroy()),
      tuning.stopGraceMs,
    );
    await Promise.all([plain.close(tuning.stopGraceMs), secure.close(tuning.stopGraceMs), sync.stop()]);
    clearTimeout(cut);
    handler.openWebSockets.forEach((socket) => socket.destroy());
    waker.stop();
    proxy.stop();
    await Promise.all([store.stop(), certificates.stop()]);
    state = 'stopped';
  };

  return {
    async start() {
      if (state !== 'new') throw new Error('an edge is started once');
      state = 'running';
      try {
        await store.start();
        await ca.rootPem();
        await sync.start();
        const stored = [...(sync.snapshot?.routes() ?? [])];
        if (stored.length > 0)
          await certificates.sweep(
            new Set(stored.flatMap(({ certificate }) => certificate?.fingerprint ?? [])),
          );
        const port = await plain.listen(options.port ?? 8080, options.host);
        const tlsPort = await secure.listen(options.tlsPort ?? 8443, options.host);
        ports = { port, tlsPort };
      } catch (error) {
        await (stopping ??= stop());
        throw error;
      }
      logger.info({ ...ports, hosts: sync.snapshot?.size ?? 0 }, 'the edge is listening');
      return ports;
    },
    stop: () => (stopping ??= stop()),
    refresh: () => sync.refresh(),
    onApplied: (listener) => sync.onApplied(listener),
    caPem: () => ca.rootPem(),
    status() {
      return {
        state,
        ready: state === 'running' && sync.snapshot !== null,
        port: ports?.port ?? null,
        tlsPort: ports?.tlsPort ?? null,
        version: sync.snapshot?.version ?? null,
        hosts: sync.snapshot?.size ?? 0,
        ...sync.status(),
        artifacts: store.usage(),
      };
    },
  };
}
