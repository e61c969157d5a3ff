import { type Answer, ControlPlane, withKubernetes } from './support/control-plane.js';
import { forms } from './support/forms.js';
import { chart, everything, type Manifest, render, required, runHelm, withValues } from './support/helm.js';
import { PretendNode } from './support/pretend-node.js';

const namespace = 'prod';
/** Where objects of a kind are made. */
const folders: Record<string, string> = {
  'v1/ConfigMap': 'configmaps',
  'v1/PersistentVolumeClaim': 'persistentvolumeclaims',
  'v1/Secret': 'secrets',
  'v1/Service': 'services',
  'v1/ServiceAccount': 'serviceaccounts',
  'apps/v1/DaemonSet': 'daemonsets',
  'apps/v1/Deployment': 'deployments',
  'apps/v1/StatefulSet': 'statefulsets',
  'batch/v1/Job': 'jobs',
  'networking.k8s.io/v1/Ingress': 'ingresses',
  'networking.k8s.io/v1/NetworkPolicy': 'networkpolicies',
  'policy/v1/PodDisruptionBudget': 'poddisruptionbudgets',
};
const folderOf = ({ apiVersion, kind }: Manifest): string => {
  const base = apiVersion === 'v1' ? '/api/v1' : `/apis/${apiVersion}`;
  return `${base}/namespaces/${namespace}/${folders[`${apiVersion}/${kind}`]!}`;
};

/** The API server checks, stores and controls as in any cluster; the one node only says that it runs what it is given. */
withKubernetes('the chart in a Kubernetes whose nodes are pretended', () => {
  let plane: ControlPlane;
  let node: PretendNode;

  beforeAll(async () => {
    plane = await ControlPlane.start();
    // What a pod does beyond the strictest profile is said in a warning.
    const labels = { 'pod-security.kubernetes.io/warn': 'restricted' };
    await plane.call('POST', '/api/v1/namespaces', { metadata: { name: namespace, labels } });
    // What `everything` names.
    const cloud = { metadata: { name: 'cloud' }, value: 1_000 };
    await plane.call('POST', '/apis/scheduling.k8s.io/v1/priorityclasses', cloud);
    node = await PretendNode.start(plane, namespace, { 'nebo-region': 'true' });
  }, 180_000);
  afterAll(async () => {
    await node?.stop();
    await plane?.stop();
  }, 60_000);

  const list = async (folder: string): Promise<Manifest[]> => {
    const { status, body } = await plane.call('GET', folder);
    expect(status).toBe(200);
    return (body as { items: Manifest[] }).items;
  };
  const namesIn = async (kind: string) =>
    (
      await list(
        folderOf({ apiVersion: kind.replace(/\/[^/]+$/, ''), kind: kind.split('/').at(-1)! } as Manifest),
      )
    )
      .map(({ metadata }) => metadata.name)
      .filter((name) => name !== 'default' && name !== 'kube-root-ca.crt')
      .sort();
  /** @returns helm's words where it failed; null: it went well */
  const helm = async (words: string[], values: object = {}): Promise<string | null> => {
    const all = (path: string) => [
      ...[...words, '--namespace', namespace, '--wait', '--timeout', '150s'],
      ...(words[0] === 'uninstall' ? [] : ['-f', path]),
    ];
    const { code, stderr } = await withValues(values, (path) =>
      runHelm(all(path), { KUBECONFIG: plane.kubeconfig }, 200_000),
    );
    return code === 0 ? null : `${stderr}\n${await trouble()}`;
  };
  /** What the cluster says of what is not ready. */
  const trouble = async (): Promise<string> => {
    type Event = { type: string; message: string; involvedObject: { kind: string; name: string } };
    const { items } = (await plane.call('GET', `/api/v1/namespaces/${namespace}/events`)).body as {
      items: Event[];
    };
    const said = items.filter(({ type }) => type === 'Warning');
    const lines = said.map(
      ({ message, involvedObject: { kind, name } }) => `${kind} ${name}: ${message.slice(0, 300)}`,
    );
    for (const kind of ['Deployment', 'StatefulSet', 'DaemonSet'])
      for (const { metadata, status } of await list(
        `/apis/apps/v1/namespaces/${namespace}/${kind.toLowerCase()}s`,
      ))
        lines.push(`${kind} ${metadata.name}: ${JSON.stringify({ ...status, conditions: undefined })}`);
    return [...new Set(lines)].join('\n');
  };
  const masterKey = async () =>
    ((await plane.call('GET', `/api/v1/namespaces/${namespace}/secrets/nebo-master-key`)).body as Manifest)
      .data?.['master.key'];

  it.each(forms)(
    '%s: every object is taken, with no field that is unknown or given twice',
    async (_title, values) => {
      const refused: { name: string; answer: Answer }[] = [];
      const warned: string[] = [];
      for (const manifest of await render(values)) {
        const path = `${folderOf(manifest)}?dryRun=All&fieldValidation=Strict`;
        const answer = await plane.call('POST', path, manifest);
        const name = `${manifest.kind}/${manifest.metadata.name}`;
        if (answer.status !== 201) refused.push({ name, answer });
        if (answer.warnings.length > 0) warned.push(name);
      }
      expect(refused).toEqual([]);
      // Whoever runs other people's programs or networks on the node needs rights there, and nobody else.
      const text = JSON.stringify(values);
      const privileged = text.includes('"driver":"local"') ? ['DaemonSet/nebo-region-agent'] : [];
      expect(warned).toEqual(privileged);
    },
  );

  it('is installed, upgraded to everything and back, and removed; the master key and the data stay', async () => {
    expect(await helm(['install', 'nebo', chart], required)).toBeNull();
    const key = await masterKey();
    expect(key).toMatch(/\S/);
    // The migration job was there and is gone.
    expect([...node.seen].some((name) => name.startsWith('nebo-migrate-'))).toBe(true);
    expect(await namesIn('batch/v1/Job')).toEqual([]);
    const services = await list(`/api/v1/namespaces/${namespace}/services`);
    const portsOf = (name: string) =>
      services
        .find(({ metadata }) => metadata.name === name)!
        .spec.ports.map(({ port, protocol }: { port: number; protocol: string }) => `${protocol} ${port}`)
        .sort();
    expect(portsOf('nebo-nameserver')).toEqual(['TCP 53', 'UDP 53']);
    expect(portsOf('nebo-edge')).toEqual(['TCP 443', 'TCP 80']);
    expect(await namesIn('apps/v1/StatefulSet')).toContain('nebo-inference-router');

    // A claim's class is for its life.
    const grown = { ...everything, blobs: {} };
    expect(await helm(['upgrade', 'nebo', chart], grown)).toBeNull();
    expect(await masterKey()).toBe(key);
    expect(await helm(['upgrade', 'nebo', chart], required)).toBeNull();
    expect(await masterKey()).toBe(key);

    expect(await helm(['uninstall', 'nebo'])).toBeNull();
    for (const kind of [
      'apps/v1/Deployment',
      'apps/v1/StatefulSet',
      'apps/v1/DaemonSet',
      'v1/Service',
      'v1/ConfigMap',
    ])
      expect([kind, await namesIn(kind)]).toEqual([kind, []]);
    expect(await namesIn('v1/Secret')).toEqual(['nebo-master-key']);
    expect(await namesIn('v1/PersistentVolumeClaim')).toEqual(
      expect.arrayContaining(['nebo-blobs', 'nebo-disk-blobs']),
    );
    // The next install goes on with both.
    expect(await helm(['install', 'nebo', chart], required)).toBeNull();
    expect(await masterKey()).toBe(key);
  }, 900_000);
});
