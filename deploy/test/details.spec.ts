import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseWakeAddress } from '@nebo/contracts/wake';
import { serviceNames } from '@nebo/service-kit';
import { parse } from 'yaml';
import {
  chart,
  configFile,
  everything,
  find,
  type Manifest,
  render,
  required,
  withHelm,
} from './support/helm.js';
import { type Container, containersOf, workloadsOf } from './support/pods.js';

const read = (path: string) => readFileSync(fileURLToPath(new URL(path, import.meta.url)), 'utf8');
const inference = configFile(read('../config/inference.example.yaml'));
const prices = configFile(read('../config/prices.yaml'));

withHelm('the chart in detail', () => {
  it('shows the administrator’s password to the migration job only, and no secret in the clear', async () => {
    const manifests = await render(everything);
    const holders = manifests.filter(({ data }) =>
      Object.values(data ?? {}).some((value) => Buffer.from(value, 'base64').includes('s3cret%40word')),
    );
    expect(holders.map(({ metadata }) => metadata.name)).toEqual(['nebo-migrate']);
    const readers = workloadsOf(manifests).filter(({ pod }) =>
      JSON.stringify(pod).includes('"nebo-migrate"'),
    );
    expect(readers.map(({ component }) => component)).toEqual(['migrate']);
    const services = find(manifests, 'Secret', 'nebo-connections').data!['database-url']!;
    expect(Buffer.from(services, 'base64').toString()).toBe(
      'postgres://db.example.org:5432/nebo?sslmode=require',
    );
    const text = JSON.stringify(manifests.filter(({ kind }) => kind !== 'Secret'));
    for (const secret of ['s3cret', everything.regionAgent.token]) expect(text).not.toContain(secret);
  });

  it.each(['simulated', 'local'])(
    'agent (%s) and edge of a region are a pair: one address on the pod’s loopback, one secret',
    async (driver) => {
      const regionAgent = { ...everything.regionAgent, driver };
      const manifests = await render({ ...everything, regionAgent });
      const { pod } = workloadsOf(manifests).find(({ component }) => component === 'region-agent')!;
      const wakeOf = (name: string) =>
        pod.containers
          .find((container) => container.name === name)!
          .env.filter((variable) => variable.name.startsWith('NEBO_WAKE'));
      expect(wakeOf('edge')).toEqual([
        { name: 'NEBO_WAKE', value: 'http://127.0.0.1:8077' },
        {
          name: 'NEBO_WAKE_TOKEN',
          valueFrom: { secretKeyRef: { name: 'nebo-region', key: 'region-token' } },
        },
      ]);
      expect(wakeOf('region-agent')).toEqual(wakeOf('edge'));
      // What both read of it, and a secret that is long enough for a port.
      expect(parseWakeAddress(wakeOf('edge')[0]!.value!)).toEqual({ host: '127.0.0.1', port: 8077 });
      expect(everything.regionAgent.token.length).toBeGreaterThanOrEqual(32);
      // Nobody else of the cluster gets there: no port of the pod, no Service and no policy has it.
      const others = manifests.filter(({ kind }) => kind === 'Service' || kind === 'NetworkPolicy');
      expect(JSON.stringify([others, pod.containers.map(({ ports }) => ports)])).not.toContain('8077');
    },
  );

  it('an edge apart, or without an agent, has nobody to wake', async () => {
    const apart = { ...everything, edge: { besideAgent: false } };
    for (const manifests of [await render(required), await render(apart)])
      for (const { env } of containersOf(manifests))
        expect(env.map(({ name }) => name)).not.toContain('NEBO_WAKE');
  });

  it('the edge on ports of its node, certificates of an authority, and where it is reached', async () => {
    const manifests = await render({
      ...required,
      edge: { hostPorts: { enabled: true, https: 4443 }, addresses: ['203.0.113.7', '2001:db8::7'] },
      certificates: {
        acmeDirectory: 'https://acme.example.org/directory',
        acmeEmail: 'it@example.org',
        accountBinding: { existingSecret: 'customer' },
      },
    });
    const container = (name: string) => containersOf(manifests).find((one) => one.name === name)!;
    expect(container('edge').ports).toEqual([
      { name: 'http', containerPort: 8080, hostPort: 80 },
      { name: 'https', containerPort: 8443, hostPort: 4443 },
    ]);
    const { env } = container('apps-builder');
    for (const [name, value] of [
      ['NEBO_ACME_DIRECTORY', 'https://acme.example.org/directory'],
      ['NEBO_ACME_EMAIL', 'it@example.org'],
      ['NEBO_EDGE_ADDRESSES', '203.0.113.7,2001:db8::7'],
      ['NEBO_EDGE_VISITOR_PORT', '4443'],
    ])
      expect(env).toContainEqual({ name, value });
    for (const [name, key] of [
      ['NEBO_ACME_EAB_KID', 'eab-kid'],
      ['NEBO_ACME_EAB_KEY', 'eab-key'],
    ])
      expect(env).toContainEqual({ name, valueFrom: { secretKeyRef: { name: 'customer', key } } });
    const plain = containersOf(await render(required));
    expect(plain.find(({ name }) => name === 'edge')!.ports).toEqual([
      { name: 'http', containerPort: 8080 },
      { name: 'https', containerPort: 8443 },
    ]);
    const builder = plain.find(({ name }) => name === 'apps-builder')!.env;
    expect(builder.map(({ name }) => name)).not.toContain('NEBO_ACME_DIRECTORY');
    expect(builder).toContainEqual({ name: 'NEBO_EDGE_VISITOR_PORT', value: '443' });
  });

  it('gives the OAuth apps of git hosts to apps-builder alone, their secrets as variables and files', async () => {
    const oauth_apps = [{ provider: 'gitlab', client_id: 'x', client_secret_env: 'GITLAB_SECRET' }];
    const manifests = await render({ ...required, git: { config: { oauth_apps }, secret: 'git-apps' } });
    const map = find(manifests, 'ConfigMap', 'nebo-git');
    expect(parse(map.data!['git.yaml']!)).toEqual({ oauth_apps });
    const withIt = containersOf(manifests).filter(({ envFrom }) => envFrom !== undefined);
    expect(withIt.map(({ name, envFrom }) => [name, envFrom])).toEqual([
      ['apps-builder', [{ secretRef: { name: 'git-apps' } }]],
    ]);
    const [builder] = withIt;
    expect(builder!.env).toContainEqual({ name: 'NEBO_GIT_CONFIG', value: '/etc/nebo/git/git.yaml' });
    expect(builder!.volumeMounts).toEqual(
      expect.arrayContaining([
        { name: 'git', mountPath: '/etc/nebo/git', readOnly: true },
        { name: 'git-secret', mountPath: '/etc/nebo/git-secret', readOnly: true },
      ]),
    );
    const plain = containersOf(await render(required)).find(({ name }) => name === 'apps-builder')!;
    expect(plain.env.map(({ name }) => name)).not.toContain('NEBO_GIT_CONFIG');
  });

  it('migrates before anything else, with secrets that exist by then', async () => {
    const manifests = await render(required);
    const hooks = manifests.filter(({ metadata }) => metadata.annotations?.['helm.sh/hook']);
    const weight = ({ metadata }: Manifest) => Number(metadata.annotations!['helm.sh/hook-weight']);
    expect(hooks.map(({ kind }) => kind).sort()).toEqual(['Job', 'Secret', 'ServiceAccount']);
    for (const { metadata } of hooks)
      expect(metadata.annotations!['helm.sh/hook']).toBe('pre-install,pre-upgrade');
    const job = find(hooks, 'Job', 'nebo-migrate');
    for (const other of hooks.filter((hook) => hook !== job)) expect(weight(other)).toBeLessThan(weight(job));
    for (const container of containersOf(manifests).filter(({ name }) =>
      (serviceNames as readonly string[]).includes(name),
    ))
      expect(container.env).toContainEqual({ name: 'NEBO_MIGRATE', value: 'off' });
    const without = await render({ ...required, migrations: { enabled: false } });
    expect(without.filter(({ kind }) => kind === 'Job')).toEqual([]);
    expect(containersOf(without).find(({ name }) => name === 'dns')!.env).toContainEqual({
      name: 'NEBO_MIGRATE',
      value: 'on',
    });
  });

  it('makes a master key of 64 hex digits, another each time, the same for the job and the services', async () => {
    const keys = async () => {
      const manifests = await render(required);
      return ['nebo-master-key', 'nebo-migrate'].map((name) =>
        Buffer.from(find(manifests, 'Secret', name).data!['master.key']!, 'base64').toString(),
      );
    };
    const [first, second] = [await keys(), await keys()];
    expect(first[0]).toMatch(/^[0-9a-f]{64}$/);
    expect(first[1]).toBe(first[0]);
    expect(second[0]).not.toBe(first[0]);
    const manifests = await render({ ...required, masterKey: { value: 'c'.repeat(64) } });
    const { data, metadata } = find(manifests, 'Secret', 'nebo-master-key');
    expect(Buffer.from(data!['master.key']!, 'base64').toString()).toBe('c'.repeat(64));
    expect(metadata.annotations).toEqual({ 'helm.sh/resource-policy': 'keep' });
  });

  it('keeps doors open and everything else shut', async () => {
    const manifests = await render(everything);
    const policies = manifests.filter(({ kind }) => kind === 'NetworkPolicy');
    expect(find(policies, 'NetworkPolicy', 'nebo-default-deny').spec).toMatchObject({
      policyTypes: ['Ingress'],
    });
    expect(find(policies, 'NetworkPolicy', 'nebo-default-deny').spec).not.toHaveProperty('ingress');
    const peers = (name: string) =>
      find(policies, 'NetworkPolicy', name).spec.ingress[0].from[0].podSelector.matchExpressions[0].values;
    for (const service of serviceNames) {
      const extra = service === 'apps-builder' ? ['region-agent'] : [];
      expect(find(policies, 'NetworkPolicy', `nebo-${service}`).spec.ingress[0].from.slice(1)).toEqual(
        everything.networkPolicy.metricsFrom,
      );
      expect(peers(`nebo-${service}`).sort()).toEqual(['api-gateway', ...serviceNames, ...extra].sort());
    }
    expect(find(policies, 'NetworkPolicy', 'nebo-api-gateway').spec.ingress).toMatchObject([
      { from: everything.networkPolicy.gatewayFrom },
      { from: [{ podSelector: { matchLabels: { 'app.kubernetes.io/component': 'region-agent' } } }] },
    ]);
    expect(find(policies, 'NetworkPolicy', 'nebo-edge').spec.ingress).toEqual([
      {
        ports: [
          { protocol: 'TCP', port: 'http' },
          { protocol: 'TCP', port: 'https' },
        ],
      },
    ]);
  });

  it('puts the edge beside the agent, where apps answer, and only there widens rights', async () => {
    const beside = workloadsOf(await render(everything));
    expect(
      beside.find(({ component }) => component === 'region-agent')!.pod.containers.map(({ name }) => name),
    ).toEqual(['region-agent', 'edge']);
    expect(beside.filter(({ component }) => component === 'edge')).toEqual([]);
    const sandboxes = await render({
      ...everything,
      regionAgent: { ...everything.regionAgent, driver: 'local' },
    });
    const privileged = containersOf(sandboxes).filter(({ securityContext }) => securityContext['privileged']);
    expect(privileged.map(({ name }) => name)).toEqual(['region-agent']);
    expect(privileged[0]!.env).toContainEqual({
      name: 'NEBO_DRIVERS',
      value: 'builds=local,replicas=local,networks=local',
    });
    // Whoever breaks out of an app must not find the key of the installation beside it.
    const agent = containersOf(await render(everything)).find(({ name }) => name === 'region-agent')!;
    expect(agent.volumeMounts.map(({ name }) => name)).not.toContain('master-key');
  });

  it('runs an agent with machines and networks on the one node that is the region, with what they need and no more', async () => {
    const local = { ...everything, regionAgent: { ...everything.regionAgent, driver: 'local' } };
    const own = { 'region-agent': { nodeSelector: { 'kubernetes.io/hostname': 'rack-7' } } };
    const agentOf = async (values: object) => {
      const manifests = await render(values);
      const { kind, spec } = manifests.find(
        ({ kind, metadata }) =>
          ['DaemonSet', 'Deployment'].includes(kind) && metadata.name === 'nebo-region-agent',
      )!;
      return { kind, spec, pod: spec.template.spec, manifests };
    };
    const { kind, spec, pod, manifests } = await agentOf(local);
    expect(kind).toBe('DaemonSet');
    // The old one is gone before the new one comes: they would take the region from each other.
    expect(spec.updateStrategy).toEqual({
      type: 'RollingUpdate',
      rollingUpdate: { maxUnavailable: 1, maxSurge: 0 },
    });
    expect(pod).toMatchObject({ nodeSelector: { 'nebo-region': 'true' } });
    expect(pod).not.toHaveProperty('hostNetwork');
    expect(pod).not.toHaveProperty('hostPID');
    expect((await agentOf({ ...local, processes: own })).pod.nodeSelector).toEqual(
      own['region-agent'].nodeSelector,
    );
    // On a read-only root: namespaces by name in memory, disks in a folder of the node.
    const [agent] = pod.containers as Container[];
    expect(agent!.volumeMounts).toContainEqual({ name: 'region-agent-run', mountPath: '/run' });
    expect(pod.volumes).toContainEqual({
      name: 'region-agent-home',
      hostPath: { path: '/var/lib/nebo-region', type: 'DirectoryOrCreate' },
    });
    expect(agent!.env).toContainEqual({ name: 'NEBO_UPLINK', value: 'masquerade' });
    expect(
      manifests.filter(({ kind }) => kind === 'PersistentVolumeClaim').map(({ metadata }) => metadata.name),
    ).not.toContain('nebo-region-agent');
    const others = workloadsOf(manifests).filter(({ component }) => component !== 'region-agent');
    expect(
      others.flatMap(({ pod: { volumes } }) => volumes.filter((volume) => 'hostPath' in volume)),
    ).toEqual([]);

    const outside = await agentOf({
      ...local,
      regionAgent: { ...local.regionAgent, hostNetwork: true, uplink: 'eth1' },
      networkPolicy: { nodeFrom: [{ ipBlock: { cidr: '198.51.100.7/32' } }] },
    });
    expect(outside.pod).toMatchObject({ hostNetwork: true, dnsPolicy: 'ClusterFirstWithHostNet' });
    expect(outside.pod.containers[0].env).toContainEqual({ name: 'NEBO_UPLINK', value: 'eth1' });
    const peers = { ipBlock: { cidr: '198.51.100.7/32' } };
    for (const [policy, rule] of [
      ['nebo-apps-builder', 0],
      ['nebo-api-gateway', 1],
    ] as const)
      expect(find(outside.manifests, 'NetworkPolicy', policy).spec.ingress[rule].from).toContainEqual(peers);

    const simulated = await agentOf(everything);
    expect(simulated.pod.containers[0].env).toContainEqual({
      name: 'NEBO_DRIVERS',
      value: 'builds=simulated,replicas=simulated,networks=simulated,machines=simulated',
    });
    expect(simulated.kind).toBe('Deployment');
    expect(simulated.pod.volumes.map(({ name }: { name: string }) => name)).not.toContain('region-agent-run');
  });

  it('never runs two writers on a volume that is one pod’s', async () => {
    const strategies = async (values: object) =>
      Object.fromEntries(
        (await render(values))
          .filter(({ kind }) => kind === 'Deployment')
          .map(({ metadata, spec }) => [metadata.name, spec.strategy.type]),
      );
    expect(await strategies(required)).toMatchObject({
      'nebo-edge': 'Recreate',
      'nebo-apps-builder': 'RollingUpdate',
      'nebo-api-gateway': 'RollingUpdate',
    });
    expect(
      await strategies({
        ...everything,
        processes: {},
        blobs: { accessModes: ['ReadWriteOnce'] },
        diskBlobs: { accessModes: ['ReadWriteOnce'] },
      }),
    ).toMatchObject({
      'nebo-compute': 'Recreate',
      'nebo-region-agent': 'Recreate',
      'nebo-apps-builder': 'Recreate',
    });
  });

  it('gives each router a volume of its own, where its money survives restarts, updates and scaling', async () => {
    for (const values of [required, everything]) {
      const manifests = await render(values);
      const { spec } = find(manifests, 'StatefulSet', 'nebo-inference-router');
      const [router] = containersOf(manifests).filter(({ name }) => name === 'inference-router');
      const folder = router!.env.find(({ name }) => name === 'NEBO_INFERENCE_DIR')!.value!;
      const mount = router!.volumeMounts.find(({ mountPath }) => folder.startsWith(`${mountPath}/`))!;
      // A claim by template is one volume per pod, and the same one again after a restart.
      expect(spec.volumeClaimTemplates).toMatchObject([
        { metadata: { name: mount.name }, spec: { accessModes: ['ReadWriteOnce'] } },
      ]);
      expect(mount.readOnly).toBeUndefined();
      expect(spec.template.spec.volumes.map(({ name }: { name: string }) => name)).not.toContain(mount.name);
      expect(spec.persistentVolumeClaimRetentionPolicy).toEqual({
        whenDeleted: 'Retain',
        whenScaled: 'Retain',
      });
      expect(find(manifests, 'Service', spec.serviceName).spec.clusterIP).toBe('None');
      // The longest path of a Unix socket is about 100 bytes: the one that tells who has the folder lies in it.
      expect(Buffer.byteLength(`${folder}/alive.sock`)).toBeLessThanOrEqual(100);
    }
  });

  it('sends a router requests once its money is open, does not kill it before, and lets it settle when it stops', async () => {
    const manifests = await render(required);
    const [router] = containersOf(manifests).filter(({ name }) => name === 'inference-router');
    // The part `money` of /healthz is required: 503 until identity-billing has opened the router.
    expect(router).toMatchObject({
      readinessProbe: { httpGet: { path: '/healthz', port: 'http' } },
      startupProbe: { tcpSocket: { port: 'http' } },
      livenessProbe: { tcpSocket: { port: 'http' } },
      lifecycle: { preStop: { exec: { command: ['sleep', '5'] } } },
    });
    // Every process of Nebo ends within 10 s of SIGTERM.
    expect(
      find(manifests, 'StatefulSet', 'nebo-inference-router').spec.template.spec
        .terminationGracePeriodSeconds,
    ).toBeGreaterThanOrEqual(5 + 10);
  });

  it('hands files of providers and prices on as they are', async () => {
    const manifests = await render({ ...required, inferenceRouter: { config: inference }, prices });
    expect(parse(find(manifests, 'ConfigMap', 'nebo-inference').data!['inference.yaml']!)).toEqual(inference);
    expect(parse(find(manifests, 'ConfigMap', 'nebo-prices').data!['prices.yaml']!)).toEqual(prices);
    const env = (name: string) => containersOf(manifests).find((container) => container.name === name)!.env;
    expect(env('inference-router')).toContainEqual({
      name: 'NEBO_INFERENCE_CONFIG',
      value: '/etc/nebo/inference/inference.yaml',
    });
    expect(env('identity-billing')).toContainEqual({
      name: 'NEBO_PRICES_FILE',
      value: '/etc/nebo/prices/prices.yaml',
    });
  });

  it('lets a setting of one process win over the setting of all', async () => {
    const containers = containersOf(await render(everything));
    const level = (process: string) =>
      containers.find(({ name }) => name === process)!.env.find(({ name }) => name === 'NEBO_LOG_LEVEL')!
        .value;
    expect([level('api-gateway'), level('dns')]).toEqual(['warn', 'debug']);
  });

  it('routes both doors and lets streams last an hour', async () => {
    const { metadata, spec } = find(await render(everything), 'Ingress', 'nebo');
    expect(metadata.annotations).toMatchObject({
      'nginx.ingress.kubernetes.io/proxy-read-timeout': '3600',
      'nginx.ingress.kubernetes.io/proxy-buffering': 'off',
    });
    const doors = spec.rules.map((rule: { host: string; http: { paths: { backend: object }[] } }) => [
      rule.host,
      rule.http.paths[0]!.backend,
    ]);
    expect(doors.sort()).toEqual([
      ['ai.example.org', { service: { name: 'nebo-api-gateway', port: { name: 'ai' } } }],
      ['api.example.org', { service: { name: 'nebo-api-gateway', port: { name: 'api' } } }],
    ]);
    expect(spec.tls).toEqual([
      { hosts: ['api.example.org'], secretName: 'api-tls' },
      { hosts: ['ai.example.org'] },
    ]);
  });

  it('documents every value in its README', () => {
    const readme = readFileSync(`${chart}/README.md`, 'utf8');
    const values = parse(readFileSync(`${chart}/values.yaml`, 'utf8')) as Record<string, unknown>;
    const missing: string[] = [];
    const walk = (node: unknown, path: string): void => {
      const open =
        typeof node !== 'object' || node === null || Array.isArray(node) || Object.keys(node).length === 0;
      if (readme.includes(`\`${path}\``) || readme.includes(`\`${path}.*\``)) return;
      if (open) missing.push(path);
      else for (const [key, value] of Object.entries(node)) walk(value, `${path}.${key}`);
    };
    for (const [key, value] of Object.entries(values)) walk(value, key);
    expect(missing).toEqual([]);
  });
});
