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
  const helm = (words: string[], values: object = {}) =>
    withValues(values, (path) =>
      runHelm([...words, '--namespace', namespace, ...(words[0] === 'uninstall' ? [] : ['-f', path])], {
        KUBECONFIG: plane.kubeconfig,
      }),
    );
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
      const agents = text.includes('"driver":"local"') ? ['DaemonSet/nebo-region-agent'] : [];
      const doors = text.includes('"hostPorts"') ? ['Deployment/nebo-edge', 'Deployment/nebo-dns'] : [];
      expect(warned.filter((name) => ![...agents, ...doors].includes(name))).toEqual([]);
    },
  );

  it('is installed, upgraded to everything and back, and removed; the master key and the data stay', async () => {
    const installed = await helm(['install', 'nebo', chart, '--wait', '--timeout', '150s'], required);
    expect(installed).toMatchObject({ code: 0 });
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

    const upgraded = await helm(['upgrade', 'nebo', chart, '--wait', '--timeout', '150s'], everything);
    expect(upgraded).toMatchObject({ code: 0 });
    expect(await masterKey()).toBe(key);
    const back = await helm(['upgrade', 'nebo', chart, '--wait', '--timeout', '150s'], required);
    expect(back).toMatchObject({ code: 0 });
    expect(await masterKey()).toBe(key);

    const removed = await helm(['uninstall', 'nebo', '--wait', '--timeout', '150s']);
    expect(removed).toMatchObject({ code: 0 });
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
    const again = await helm(['install', 'nebo', chart, '--wait', '--timeout', '150s'], required);
    expect(again).toMatchObject({ code: 0 });
    expect(await masterKey()).toBe(key);
  }, 900_000);
});
