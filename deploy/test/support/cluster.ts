import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Kinds that the chart makes, by group. */
const kinds: Record<string, string[]> = {
  v1: ['Secret', 'Service', 'ServiceAccount', 'ConfigMap', 'PersistentVolumeClaim'],
  'apps/v1': ['DaemonSet', 'Deployment', 'StatefulSet'],
  'batch/v1': ['Job'],
  'networking.k8s.io/v1': ['NetworkPolicy', 'Ingress'],
  'policy/v1': ['PodDisruptionBudget'],
};

const plural = (kind: string) =>
  kind.endsWith('y')
    ? `${kind.slice(0, -1)}ies`.toLowerCase()
    : `${kind}s`.replace('ss', 'sses').toLowerCase();

function discovery(): Record<string, object> {
  const groups = Object.keys(kinds).filter((group) => group !== 'v1');
  const lists = Object.entries(kinds).map(([groupVersion, names]) => {
    const resources = names.map((kind) => ({
      name: plural(kind),
      kind,
      namespaced: true,
      verbs: ['get', 'list', 'create'],
    }));
    return [
      groupVersion === 'v1' ? '/api/v1' : `/apis/${groupVersion}`,
      { kind: 'APIResourceList', groupVersion, resources },
    ];
  });
  return {
    '/version': { major: '1', minor: '31', gitVersion: 'v1.31.0' },
    '/api': { kind: 'APIVersions', versions: ['v1'] },
    '/apis': {
      kind: 'APIGroupList',
      apiVersion: 'v1',
      groups: groups.map((groupVersion) => {
        const version = { groupVersion, version: groupVersion.split('/')[1] };
        return { name: groupVersion.split('/')[0], versions: [version], preferredVersion: version };
      }),
    },
    ...Object.fromEntries(lists),
  };
}

/**
 * As much of a Kubernetes API as helm asks for before it changes anything: its version, its kinds, and Secrets with a master
 * key in the namespace `prod`. It takes no changes. `use` gets the path of a kubeconfig.
 */
export async function withCluster<T>(
  masterKeys: Record<string, string>,
  use: (kubeconfig: string) => Promise<T>,
): Promise<T> {
  const answers = discovery();
  for (const [name, key] of Object.entries(masterKeys)) {
    const data = { 'master.key': Buffer.from(key).toString('base64') };
    // Helm takes over what carries the marks of its release, and nothing else.
    const metadata = {
      name,
      namespace: 'prod',
      labels: { 'app.kubernetes.io/managed-by': 'Helm' },
      annotations: { 'meta.helm.sh/release-name': 'nebo', 'meta.helm.sh/release-namespace': 'prod' },
    };
    answers[`/api/v1/namespaces/prod/secrets/${name}`] = { apiVersion: 'v1', kind: 'Secret', metadata, data };
  }
  const missing = { kind: 'Status', apiVersion: 'v1', status: 'Failure', reason: 'NotFound', code: 404 };
  const server = createServer((request, response) => {
    const answer = request.method === 'GET' ? answers[request.url!.split('?')[0]!] : undefined;
    response
      .writeHead(answer ? 200 : 404, { 'content-type': 'application/json' })
      .end(JSON.stringify(answer ?? missing));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const folder = mkdtempSync(join(tmpdir(), 'nebo-cluster-'));
  try {
    const path = join(folder, 'config');
    writeFileSync(path, JSON.stringify(kubeconfig(server)));
    return await use(path);
  } finally {
    server.close();
    server.closeAllConnections();
    rmSync(folder, { recursive: true, force: true });
  }
}

function kubeconfig(server: Server): object {
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'c',
    clusters: [{ name: 'c', cluster: { server: url } }],
    contexts: [{ name: 'c', context: { cluster: 'c', user: 'u', namespace: 'prod' } }],
    users: [{ name: 'u', user: {} }],
  };
}
