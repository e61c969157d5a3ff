import { type Manifest } from './helm.js';

export interface EnvEntry {
  name: string;
  value?: string;
  valueFrom?: { secretKeyRef: { name: string; key: string } };
}

export interface Container {
  name: string;
  image: string;
  args: string[];
  env: EnvEntry[];
  envFrom?: { secretRef: { name: string } }[];
  ports?: { name: string; containerPort: number; hostPort?: number }[];
  securityContext: Record<string, unknown>;
  resources: { requests?: Record<string, string>; limits?: Record<string, string> };
  volumeMounts: { name: string; mountPath: string; readOnly?: boolean }[];
  startupProbe?: object;
  readinessProbe?: object;
  livenessProbe?: object;
}

export interface Volume {
  name: string;
  secret?: { secretName: string; items: { key: string; path: string }[] };
  configMap?: { name: string };
  persistentVolumeClaim?: { claimName: string };
  emptyDir?: object;
}

/** A workload: what makes pods. */
export interface Workload {
  kind: string;
  name: string;
  component: string;
  labels: Record<string, string>;
  selector: Record<string, string> | undefined;
  pod: {
    automountServiceAccountToken: boolean;
    enableServiceLinks: boolean;
    serviceAccountName: string;
    securityContext: Record<string, unknown>;
    containers: Container[];
    volumes: Volume[];
    imagePullSecrets?: { name: string }[];
  };
  claims: string[];
}

/** All workloads, the migration job included. */
export function workloadsOf(manifests: readonly Manifest[]): Workload[] {
  return manifests
    .filter(({ kind }) => ['Deployment', 'StatefulSet', 'DaemonSet', 'Job'].includes(kind))
    .map(({ kind, metadata, spec }) => ({
      kind,
      name: metadata.name,
      component: metadata.labels['app.kubernetes.io/component']!,
      labels: spec.template.metadata.labels,
      selector: spec.selector?.matchLabels,
      pod: spec.template.spec,
      claims: (spec.volumeClaimTemplates ?? []).map((claim: Manifest) => claim.metadata.name),
    }));
}

/** All containers with the process that they run (their name). */
export const containersOf = (manifests: readonly Manifest[]): Container[] =>
  workloadsOf(manifests).flatMap(({ pod }) => pod.containers);

/** Do the labels fulfil the selector? */
export const matches = (selector: Record<string, string>, labels: Record<string, string>): boolean =>
  Object.entries(selector).every(([key, value]) => labels[key] === value);
