import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { configFile, everything, required } from './helm.js';

const read = (path: string) => readFileSync(fileURLToPath(new URL(path, import.meta.url)), 'utf8');
export const inference = configFile(read('../../config/inference.example.yaml'));
export const prices = configFile(read('../../config/prices.yaml'));

/** Every form of the chart that differs in its objects. */
export const forms: [string, object][] = [
  ['with only what is required', required],
  [
    'with everything',
    { ...everything, inferenceRouter: { ...everything.inferenceRouter, config: inference }, prices },
  ],
  [
    'with sandboxes and the edge apart',
    {
      ...everything,
      edge: { besideAgent: false },
      regionAgent: { ...everything.regionAgent, driver: 'local' },
    },
  ],
  [
    'with a region on a node',
    {
      ...everything,
      regionAgent: { ...everything.regionAgent, driver: 'local', hostNetwork: true, uplink: 'eth1' },
      networkPolicy: { ...everything.networkPolicy, nodeFrom: [{ ipBlock: { cidr: '198.51.100.7/32' } }] },
    },
  ],
  [
    'with Secrets and claims of the operator',
    {
      postgres: { existingSecret: 'own-postgres' },
      nats: { existingSecret: 'own-nats' },
      masterKey: { existingSecret: 'own-key' },
      blobs: { existingClaim: 'own-blobs' },
      diskBlobs: { existingClaim: 'own-disks' },
      regionAgent: { enabled: true, existingSecret: 'own-region' },
    },
  ],
  [
    'without migration job, policies, budgets, volumes',
    {
      ...required,
      migrations: { enabled: false },
      networkPolicy: { enabled: false },
      podDisruptionBudget: { enabled: false },
      edge: { persistence: { enabled: false } },
      processes: { edge: { replicas: 2 } },
      fullnameOverride: 'cloud',
    },
  ],
];
