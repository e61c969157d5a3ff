import { everything, helmWith, required, withHelm } from './support/helm.js';

/** Wrong values and the field that the refusal must name. */
const wrong: [string, object, string][] = [
  ['no PostgreSQL', { nats: required.nats }, 'postgres.url is required'],
  ['no NATS', { postgres: required.postgres }, 'nats.url is required'],
  ['another database', { ...required, postgres: { url: 'mysql://db/nebo' } }, '/postgres/url'],
  ['an unknown field', { ...required, gatway: {} }, 'gatway'],
  ['an unknown process', { ...required, processes: { panel: { replicas: 1 } } }, 'panel'],
  ['an unknown field of a process', { ...required, processes: { dns: { replica: 2 } } }, '/processes/dns'],
  [
    'replicas that are a text',
    { ...required, processes: { dns: { replicas: '2' } } },
    '/processes/dns/replicas',
  ],
  [
    'no replicas',
    { ...required, processes: { 'api-gateway': { replicas: 0 } } },
    '/processes/api-gateway/replicas',
  ],
  ['agents', { ...required, processes: { 'region-agent': { replicas: 2 } } }, '/processes/region-agent'],
  ['the tag latest', { ...required, image: { tag: 'latest' } }, '/image/tag'],
  ['a digest that is none', { ...required, image: { digest: 'sha256:abc' } }, '/image/digest'],
  ['a short master key', { ...required, masterKey: { value: 'abc' } }, '/masterKey/value'],
  [
    'a setting that is a number',
    { ...required, settings: { NEBO_READY_TIMEOUT: 120 } },
    '/settings/NEBO_READY_TIMEOUT',
  ],
  ['a setting that is no setting', { ...required, settings: { LOG_LEVEL: 'info' } }, 'LOG_LEVEL'],
  ['a setting that the chart sets', { ...required, settings: { NEBO_HOME: '/data' } }, 'NEBO_HOME'],
  [
    'one folder for all routers',
    { ...required, processes: { 'inference-router': { settings: { NEBO_INFERENCE_DIR: '/tmp/money' } } } },
    'NEBO_INFERENCE_DIR',
  ],
  [
    'a port that the chart sets',
    { ...required, processes: { dns: { replicas: 1, settings: { NEBO_DNS_PORT: '53' } } } },
    'NEBO_DNS_PORT',
  ],
  [
    'memory in another unit',
    { ...required, processes: { dns: { resources: { limits: { memory: '1 GB' } } } } },
    '/processes/dns/resources/limits/memory',
  ],
  [
    'a driver that is none',
    { ...everything, regionAgent: { ...everything.regionAgent, driver: 'docker' } },
    '/regionAgent/driver',
  ],
  [
    'an agent without a token',
    { ...required, regionAgent: { enabled: true } },
    'regionAgent.token is required',
  ],
  [
    'another kind of token',
    { ...required, regionAgent: { enabled: true, token: 'secret' } },
    '/regionAgent/token',
  ],
  [
    'an Ingress without a host',
    { ...required, ingress: { enabled: true } },
    'ingress.api.host or ingress.ai.host is required',
  ],
  [
    'a host that is a URL',
    { ...required, ingress: { enabled: true, api: { host: 'https://api.example.org' } } },
    '/ingress/api/host',
  ],
  [
    'two builders on one node’s disk',
    {
      ...required,
      blobs: { accessModes: ['ReadWriteOnce'] },
      processes: { 'apps-builder': { replicas: 2 } },
    },
    'processes.apps-builder.replicas',
  ],
  [
    'two computes on one node’s disk',
    {
      ...required,
      diskBlobs: { accessModes: ['ReadWriteOnce'] },
      processes: { compute: { replicas: 2 } },
    },
    'processes.compute.replicas',
  ],
  [
    'two edges on one disk',
    { ...required, processes: { edge: { replicas: 2 } } },
    'edge.persistence.enabled=false',
  ],
  [
    'two edges beside one agent',
    { ...everything, edge: { persistence: { enabled: false } }, processes: { edge: { replicas: 2 } } },
    'edge.besideAgent=false',
  ],
  [
    'a section of the inference file that is none',
    { ...required, inferenceRouter: { config: { upstreams: {} } } },
    '/inferenceRouter/config',
  ],
  [
    'ports of a node that the edge has already',
    {
      ...everything,
      edge: { hostPorts: { enabled: true } },
      regionAgent: { ...everything.regionAgent, driver: 'local', hostNetwork: true },
    },
    'edge.hostPorts.enabled',
  ],
  ['an edge at a name', { ...required, edge: { addresses: ['edge.example.org'] } }, '/edge/addresses'],
  [
    'an authority without encryption',
    { ...required, certificates: { acmeDirectory: 'http://acme.example.org/directory' } },
    '/certificates/acmeDirectory',
  ],
  [
    'a letter box without an authority',
    { ...required, certificates: { acmeEmail: 'it@example.org' } },
    'certificates.acmeDirectory',
  ],
  [
    'a customer of no authority',
    { ...required, certificates: { accountBinding: { existingSecret: 'customer' } } },
    'certificates.acmeDirectory',
  ],
  ['a way to wake apps by hand', { ...required, settings: { NEBO_WAKE: 'http://agent:1' } }, 'NEBO_WAKE'],
  ['an old Kubernetes', required, 'kubeVersion'],
];

withHelm('values that are wrong', () => {
  it.each(wrong)('%s: refused, naming the field', async (title, values, field) => {
    const more = title === 'an old Kubernetes' ? ['--kube-version', '1.26.0'] : [];
    const { code, stdout, stderr } = await helmWith(['template', 'nebo'], values, more);
    expect({ code: code > 0, stdout }).toEqual({ code: true, stdout: '' });
    expect(stderr).toContain(field);
    // Secrets of a values file must not stand in a CI job's log.
    expect(stderr).not.toContain('s3cret');
  });
});
