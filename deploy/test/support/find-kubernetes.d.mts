export const kubernetesProgram: string;
export function findKubernetes(): { kubernetes: string | null; etcd: string | null };
