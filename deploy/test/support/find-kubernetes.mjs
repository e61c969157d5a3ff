import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { goFolder } from './find-helm.mjs';

/** Name of the program that tools/deploy/install-kubernetes.mjs builds. */
export const kubernetesProgram = 'nebo-kubernetes';

/** Paths of Kubernetes' API server with its controllers, and of etcd; null for what is not here. */
export function findKubernetes() {
  const first = (...paths) => paths.find((path) => existsSync(path)) ?? null;
  return {
    kubernetes: first(join(goFolder(), 'bin', kubernetesProgram), `/usr/local/bin/${kubernetesProgram}`),
    etcd: first('/usr/bin/etcd', '/usr/local/bin/etcd'),
  };
}
