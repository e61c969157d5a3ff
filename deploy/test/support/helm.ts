import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parse, parseAllDocuments } from 'yaml';
import { findHelm } from './find-helm.mjs';

/** Folder of the chart. */
export const chart = fileURLToPath(new URL('../../helm/nebo', import.meta.url));

const helm = findHelm();

/** `describe` where helm is, else a skipped one whose name says why. */
export const withHelm = (title: string, tests: () => void): void =>
  helm
    ? describe(title, tests)
    : describe.skip(
        `${title} (helm is not here; node tools/deploy/install-helm.mjs installs it where Go is)`,
        tests,
      );

export interface Ran {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs helm without a cluster and without the user's own settings. */
export function runHelm(
  args: readonly string[],
  env: Record<string, string> = {},
  timeout = 60_000,
): Promise<Ran> {
  const own = mkdtempSync(join(tmpdir(), 'nebo-helm-'));
  const folders = {
    HELM_CACHE_HOME: own,
    HELM_CONFIG_HOME: own,
    HELM_DATA_HOME: own,
    KUBECONFIG: join(own, 'none'),
  };
  return new Promise((resolve) => {
    execFile(
      helm!,
      [...args],
      {
        env: { PATH: process.env['PATH'], HOME: own, ...folders, ...env },
        maxBuffer: 64 * 1024 * 1024,
        timeout,
      },
      (error, stdout, stderr) => {
        rmSync(own, { recursive: true, force: true });
        resolve({ code: error ? Number(error.code ?? 1) || 1 : 0, stdout, stderr });
      },
    );
  });
}

/** Values as a file for `-f`; `use` gets its path. */
export async function withValues<T>(values: object, use: (path: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'nebo-values-'));
  try {
    const path = join(folder, 'values.json');
    writeFileSync(path, JSON.stringify(values), { mode: 0o600 });
    return await use(path);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** helm with the chart and values; a version of Kubernetes, since there is no cluster to ask. */
export const helmWith = (
  command: readonly string[],
  values: object,
  more: readonly string[] = [],
): Promise<Ran> =>
  withValues(values, (path) => runHelm([...command, chart, '-f', path, '--kube-version', '1.31.0', ...more]));

/** An object of Kubernetes, as far as the tests look into it. */
export interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string; labels: Record<string, string>; annotations?: Record<string, string> };
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- shapes differ by kind, and the tests walk them all
  spec: any;
  status?: object;
  data?: Record<string, string>;
  automountServiceAccountToken?: boolean;
}

/** The objects in YAML text. @throws when it is not YAML, keys given twice included */
export function manifestsOf(text: string): Manifest[] {
  return parseAllDocuments(text).flatMap((document) => {
    if (document.errors.length > 0) throw document.errors[0]!;
    const content = document.toJS() as Manifest | null;
    return content ? [content] : [];
  });
}

/** What an install would create. @throws with helm's words when it refuses */
export async function render(values: object): Promise<Manifest[]> {
  const ran = await helmWith(['template', 'nebo', '--namespace', 'prod'], values);
  if (ran.code !== 0) throw new Error(ran.stderr);
  return manifestsOf(ran.stdout);
}

/** One object by kind and name. @throws when it is not there */
export const find = (manifests: readonly Manifest[], kind: string, name: string): Manifest => {
  const found = manifests.find((manifest) => manifest.kind === kind && manifest.metadata.name === name);
  if (!found) throw new Error(`no ${kind} ${name}`);
  return found;
};

/** What the chart cannot do without. */
export const required = {
  postgres: { url: 'postgres://boss:s3cret%40word@db.example.org:5432/nebo?sslmode=require' },
  nats: { url: 'nats://bus:s3cret@nats.example.org:4222' },
};

/** Everything that can be switched on, switched on. */
export const everything = {
  ...required,
  image: { repository: 'registry.example.org/nebo', tag: '1.2.3', digest: `sha256:${'a'.repeat(64)}` },
  imagePullSecrets: [{ name: 'pull' }],
  settings: { NEBO_LOG_LEVEL: 'debug', NEBO_KAFKA_BROKERS: 'k1:9092,k2:9092' },
  processes: {
    'api-gateway': { replicas: 3, settings: { NEBO_LOG_LEVEL: 'warn' }, nodeSelector: { pool: 'doors' } },
    'apps-builder': { replicas: 2 },
    'inference-router': { replicas: 2 },
    'region-agent': { tolerations: [{ key: 'region', operator: 'Exists' }], podAnnotations: { note: 'x' } },
  },
  blobs: { storageClass: 'shared' },
  inferenceRouter: { providerKeysSecret: 'provider-keys' },
  edge: {
    service: {
      type: 'LoadBalancer',
      externalTrafficPolicy: 'Local',
      annotations: { 'lb.example.org/kind': 'l4' },
    },
  },
  regionAgent: { enabled: true, token: `nebo_region_${'t'.repeat(43)}` },
  ingress: {
    enabled: true,
    className: 'nginx',
    api: { host: 'api.example.org', tlsSecret: 'api-tls' },
    ai: { host: 'ai.example.org' },
  },
  networkPolicy: {
    metricsFrom: [{ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'monitoring' } } }],
    gatewayFrom: [{ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'ingress-nginx' } } }],
  },
  priorityClassName: 'cloud',
  serviceAccount: { annotations: { owner: 'cloud' } },
};

/** A file of deploy/config as values. */
export const configFile = (text: string): object => parse(text) as object;
