import { setTimeout as sleep } from 'node:timers/promises';
import { type ControlPlane } from './control-plane.js';

interface Pod {
  metadata: { name: string; ownerReferences?: { kind: string }[] };
  spec: { nodeName?: string; containers: { name: string; image: string }[] };
  status: { phase?: string };
}

const merge = 'application/merge-patch+json';

/**
 * Plays the one node, its disks and its load balancer: pods are said to run as soon as there are some, Jobs to have done their work,
 * claims to be bound. No container is started.
 */
export class PretendNode {
  private readonly stopping = new AbortController();
  private readonly loop: Promise<void>;
  /** Names of pods that it has been given. */
  readonly seen = new Set<string>();

  private constructor(
    private readonly plane: ControlPlane,
    private readonly namespace: string,
  ) {
    this.loop = this.run();
  }

  /** @param labels of the node */
  static async start(
    plane: ControlPlane,
    namespace: string,
    labels: Record<string, string>,
  ): Promise<PretendNode> {
    await plane.call('POST', '/api/v1/nodes', {
      metadata: { name: 'node-1', labels: { 'kubernetes.io/hostname': 'node-1', ...labels } },
    });
    const status = {
      conditions: [{ type: 'Ready', status: 'True', reason: 'Pretended', message: 'nothing runs here' }],
      allocatable: { cpu: '64', memory: '256Gi', pods: '500' },
      capacity: { cpu: '64', memory: '256Gi', pods: '500' },
    };
    await plane.call('PATCH', '/api/v1/nodes/node-1/status', { status }, merge);
    await plane.call('PATCH', '/api/v1/nodes/node-1', { spec: { taints: null } }, merge);
    return new PretendNode(plane, namespace);
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.loop;
  }

  private async run(): Promise<void> {
    while (!this.stopping.signal.aborted) {
      await this.turn();
      await sleep(150);
    }
  }

  private async turn(): Promise<void> {
    const base = `/api/v1/namespaces/${this.namespace}`;
    const items = async <T>(kind: string): Promise<T[]> =>
      ((await this.plane.call('GET', `${base}/${kind}`)).body as { items?: T[] }).items ?? [];
    for (const pod of await items<Pod & { metadata: { deletionTimestamp?: string } }>('pods')) {
      const { name, deletionTimestamp } = pod.metadata;
      this.seen.add(name);
      if (deletionTimestamp !== undefined)
        await this.plane.call('DELETE', `${base}/pods/${name}?gracePeriodSeconds=0`);
      else if (pod.spec.nodeName === undefined)
        await this.plane.call('POST', `${base}/pods/${name}/binding`, {
          ...{ apiVersion: 'v1', kind: 'Binding', metadata: { name } },
          target: { apiVersion: 'v1', kind: 'Node', name: 'node-1' },
        });
      else if (pod.status.phase === 'Pending')
        await this.plane.call('PATCH', `${base}/pods/${name}/status`, { status: statusOf(pod) }, merge);
    }
    type Claim = { metadata: { name: string }; status: { phase?: string } };
    for (const { metadata, status } of await items<Claim>('persistentvolumeclaims'))
      if (status.phase !== 'Bound')
        await this.plane.call(
          'PATCH',
          `${base}/persistentvolumeclaims/${metadata.name}/status`,
          { status: { phase: 'Bound' } },
          merge,
        );
    type Service = { metadata: { name: string }; spec: { type: string }; status: { loadBalancer: object } };
    for (const { metadata, spec, status } of await items<Service>('services'))
      if (spec.type === 'LoadBalancer' && Object.keys(status.loadBalancer).length === 0)
        await this.plane.call(
          'PATCH',
          `${base}/services/${metadata.name}/status`,
          { status: { loadBalancer: { ingress: [{ ip: '198.51.100.9' }] } } },
          merge,
        );
  }
}

function statusOf({ metadata, spec }: Pod): object {
  const at = new Date().toISOString().replace(/\.\d+/, '');
  const isJob = metadata.ownerReferences?.some(({ kind }) => kind === 'Job') ?? false;
  const containerStatuses = spec.containers.map(({ name, image }) => ({
    ...{ name, image, imageID: image, restartCount: 0, ready: !isJob },
    state: isJob
      ? { terminated: { exitCode: 0, reason: 'Completed', startedAt: at, finishedAt: at } }
      : { running: { startedAt: at } },
  }));
  const conditions = ['Initialized', 'Ready', 'ContainersReady', 'PodScheduled'].map((type) => ({
    type,
    status: isJob && type.endsWith('Ready') ? 'False' : 'True',
    lastTransitionTime: at,
  }));
  return { phase: isJob ? 'Succeeded' : 'Running', startTime: at, conditions, containerStatuses };
}
