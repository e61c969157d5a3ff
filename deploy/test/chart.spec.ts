import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { portSettingOf, serviceNames } from '@nebo/service-kit';
import { find, helmWith, type Manifest, render, withHelm } from './support/helm.js';
import { forms } from './support/forms.js';
import { type Container, containersOf, matches, workloadsOf } from './support/pods.js';

const read = (path: string) => readFileSync(fileURLToPath(new URL(path, import.meta.url)), 'utf8');
const nameServerPorts = [
  { name: 'dns-udp', containerPort: 5354, protocol: 'UDP' },
  { name: 'dns-tcp', containerPort: 5354, protocol: 'TCP' },
];

const namesOf = ({ env }: Container): string[] => env.map(({ name }) => name);

withHelm('the chart', () => {
  describe.each(forms)('%s', (_title, values) => {
    let manifests: Manifest[];
    beforeAll(async () => {
      manifests = await render(values);
    });

    it('passes helm lint --strict', async () => {
      const { code, stdout, stderr } = await helmWith(['lint', '--strict'], values);
      expect({ code, said: code === 0 ? '' : stdout + stderr }).toEqual({ code: 0, said: '' });
    });

    it('has each object once, in one namespace, with the labels of its release', () => {
      const names = manifests.map(({ kind, metadata }) => `${kind}/${metadata.name}`);
      expect(new Set(names).size).toBe(names.length);
      for (const { metadata } of manifests) {
        expect(metadata.labels).toMatchObject({
          'app.kubernetes.io/instance': 'nebo',
          'app.kubernetes.io/name': 'nebo',
        });
        expect(metadata.name.length).toBeLessThanOrEqual(63);
      }
    });

    it('runs every container as an ordinary user on a read-only root, without rights', () => {
      const local = JSON.stringify(values).includes('"driver":"local"');
      for (const { component, pod } of workloadsOf(manifests)) {
        expect([component, pod]).toMatchObject([
          component,
          {
            automountServiceAccountToken: false,
            enableServiceLinks: false,
            securityContext: {
              runAsNonRoot: true,
              runAsUser: 1000,
              seccompProfile: { type: 'RuntimeDefault' },
            },
          },
        ]);
        for (const container of pod.containers) {
          if (local && container.name === 'region-agent') continue;
          expect([container.name, container.securityContext]).toEqual([
            container.name,
            {
              allowPrivilegeEscalation: false,
              privileged: false,
              readOnlyRootFilesystem: true,
              runAsNonRoot: true,
              runAsUser: 1000,
              runAsGroup: 1000,
              capabilities: { drop: ['ALL'] },
              seccompProfile: { type: 'RuntimeDefault' },
            },
          ]);
        }
      }
    });

    it('gives every process its probes and its share of the node', () => {
      for (const container of containersOf(manifests)) {
        expect([container.name, container.resources]).toMatchObject([
          container.name,
          {
            requests: { memory: expect.any(String), cpu: expect.any(String) },
            limits: { memory: expect.any(String) },
          },
        ]);
        // The job ends by itself; the agent listens nowhere.
        if (['migrate', 'region-agent'].includes(container.name)) continue;
        const { startupProbe, readinessProbe, livenessProbe } = container;
        expect([container.name, startupProbe, readinessProbe, livenessProbe]).toEqual([
          container.name,
          expect.any(Object),
          expect.any(Object),
          expect.any(Object),
        ]);
        if ((serviceNames as readonly string[]).includes(container.name)) {
          const healthz = { httpGet: { path: '/healthz', port: 'http' } };
          expect(readinessProbe).toMatchObject(healthz);
          if (container.name !== 'inference-router') expect(startupProbe).toMatchObject(healthz);
        }
      }
    });

    it('runs one image, never :latest, and in it the process that the container is named after', () => {
      const containers = containersOf(manifests);
      expect(new Set(containers.map(({ image }) => image)).size).toBe(1);
      expect(containers[0]!.image).toMatch(/:[0-9][^:]*(@sha256:[0-9a-f]{64})?$/);
      for (const { name, args } of containers) {
        expect(args).toEqual([
          name === 'migrate' ? 'apps/all-in-one/dist/migrate.js' : `apps/${name}/dist/main.js`,
        ]);
      }
    });

    it('selects the pods that it means: workloads, Services, budgets and policies', () => {
      const workloads = workloadsOf(manifests);
      for (const { name, selector, labels, kind } of workloads) {
        if (kind !== 'Job') expect([name, matches(selector!, labels)]).toEqual([name, true]);
      }
      for (const { kind, metadata, spec } of manifests) {
        const selector =
          kind === 'Service'
            ? spec.selector
            : kind === 'PodDisruptionBudget'
              ? spec.selector.matchLabels
              : null;
        if (!selector) continue;
        const selected = workloads.filter(({ labels }) => matches(selector, labels));
        expect([kind, metadata.name, selected.length]).toEqual([kind, metadata.name, 1]);
        if (kind !== 'Service') continue;
        const ports = selected[0]!.pod.containers
          .flatMap((container) => container.ports ?? [])
          .map(({ name }) => name);
        for (const port of spec.ports) expect(ports).toContain(port.targetPort);
      }
      for (const { metadata, spec } of manifests.filter(({ kind }) => kind === 'NetworkPolicy')) {
        const selected = workloads.filter(({ labels }) => matches(spec.podSelector.matchLabels, labels));
        expect([metadata.name, selected.length]).toEqual([
          metadata.name,
          metadata.name.endsWith('default-deny') ? workloads.length : 1,
        ]);
      }
    });

    it('names no Secret, ConfigMap, claim or account that does not exist', () => {
      const own = /^(own-|provider-keys$)/;
      const has = (kind: string, name: string) =>
        own.test(name) ||
        manifests.some((manifest) => manifest.kind === kind && manifest.metadata.name === name);
      const missing: string[] = [];
      for (const { component, pod, claims } of workloadsOf(manifests)) {
        const need = (kind: string, name: string) =>
          has(kind, name) || missing.push(`${component}: ${kind} ${name}`);
        need('ServiceAccount', pod.serviceAccountName);
        for (const volume of pod.volumes) {
          if (volume.secret) need('Secret', volume.secret.secretName);
          if (volume.configMap) need('ConfigMap', volume.configMap.name);
          if (volume.persistentVolumeClaim)
            need('PersistentVolumeClaim', volume.persistentVolumeClaim.claimName);
          if (volume.secret && !own.test(volume.secret.secretName)) {
            const { data } = find(manifests, 'Secret', volume.secret.secretName);
            for (const { key } of volume.secret.items) expect(Object.keys(data!)).toContain(key);
          }
        }
        const volumes = [...pod.volumes.map(({ name }) => name), ...claims];
        expect(new Set(volumes).size).toBe(volumes.length);
        for (const container of pod.containers) {
          for (const { name } of container.volumeMounts) expect(volumes).toContain(name);
          for (const { secretRef } of container.envFrom ?? []) need('Secret', secretRef.name);
          for (const { valueFrom } of container.env) {
            if (!valueFrom) continue;
            const { name, key } = valueFrom.secretKeyRef;
            need('Secret', name);
            if (!own.test(name)) expect(Object.keys(find(manifests, 'Secret', name).data!)).toContain(key);
          }
        }
      }
      expect(missing).toEqual([]);
    });

    it('sets every variable that the split form of the end-to-end suite sets for that process', () => {
      const source = read('../../e2e/harness/split.mjs');
      const inSplit = new Set(source.match(/\b(NEBO_[A-Z_]*[A-Z]|DATABASE_URL|NATS_URL)\b/g));
      const urls = serviceNames.map((name) => `NEBO_${name.toUpperCase().replaceAll('-', '_')}_URL`);
      const shared = ['NEBO_HOME', 'NATS_URL', 'NEBO_LOG_LEVEL', 'NEBO_RATE_LIMIT', ...urls];
      const wanted: Record<string, string[]> = {
        'api-gateway': [...shared, 'NEBO_API_PORT', 'NEBO_AI_PORT'],
        edge: [
          'NEBO_HOME',
          'NEBO_MASTER_KEY_FILE',
          'NEBO_EDGE_PORT',
          'NEBO_EDGE_TLS_PORT',
          'NEBO_APPS_BUILDER_URL',
        ],
        'region-agent': ['NEBO_HOME', 'NEBO_API_URL', 'NEBO_REGION_TOKEN'],
        ...Object.fromEntries(
          serviceNames.map((name) => [
            name,
            [...shared, 'DATABASE_URL', portSettingOf(name), ...(name === 'dns' ? ['NEBO_DNS_PORT'] : [])],
          ]),
        ),
      };
      // The chart has no way yet for an edge to wake replicas (docs/decisions/031-on-demand.md): apps on demand run always there.
      const notYet = ['NEBO_WAKE'];
      // A variable that is new in the split form must find its place above.
      const placed = [...Object.values(wanted).flat(), ...notYet];
      expect([...inSplit].filter((name) => !placed.includes(name))).toEqual([]);
      for (const container of containersOf(manifests)) {
        const names = namesOf(container);
        expect(new Set(names).size).toBe(names.length);
        expect([
          container.name,
          (wanted[container.name] ?? []).filter((name) => !names.includes(name)),
        ]).toEqual([container.name, []]);
      }
    });

    it('gives the name server to resolvers over UDP and TCP, and nothing else of the service', () => {
      const ports = containersOf(manifests).find(({ name }) => name === 'dns')!.ports;
      expect(ports).toEqual(expect.arrayContaining(nameServerPorts));
      const service = manifests.find(
        ({ kind, metadata }) => kind === 'Service' && metadata.name.endsWith('-nameserver'),
      )!;
      expect(service.spec).toMatchObject({
        selector: { 'app.kubernetes.io/component': 'dns' },
        ports: [
          { port: 53, targetPort: 'dns-udp', protocol: 'UDP' },
          { port: 53, targetPort: 'dns-tcp', protocol: 'TCP' },
        ],
      });
    });

    it('lets services find each other: the port that one listens on is the port that the others call', () => {
      const containers = containersOf(manifests);
      for (const [index, service] of serviceNames.entries()) {
        const variable = `NEBO_${service.toUpperCase().replaceAll('-', '_')}`;
        const container = containers.find(({ name }) => name === service)!;
        expect(container.env).toContainEqual({ name: portSettingOf(service), value: `${4100 + index}` });
        expect(container.ports).toEqual([
          { name: 'http', containerPort: 4100 + index },
          ...(service === 'dns' ? nameServerPorts : []),
        ]);
        for (const { env } of containers) {
          const url = env.find(({ name }) => name === `${variable}_URL`)?.value;
          if (url === undefined) continue;
          const { hostname, port } = new URL(url);
          expect(find(manifests, 'Service', hostname).spec).toMatchObject({
            selector: { 'app.kubernetes.io/component': service },
            ports: [{ port: Number(port) }],
          });
        }
      }
    });
  });
});
