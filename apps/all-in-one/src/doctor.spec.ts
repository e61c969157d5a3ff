import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Config } from '@nebo/service-kit/config';
import { type Diagnosis, doctorText, examine } from './doctor.js';

const nobody = 'http://127.0.0.1:1';
const simulated = { NEBO_DRIVERS: 'builds=simulated,replicas=simulated' };

describe('admin doctor', () => {
  const home = mkdtempSync(join(tmpdir(), 'nebo-doctor-'));
  afterAll(() => rmSync(home, { recursive: true }));
  const look = (env: Record<string, string>, url = nobody) =>
    examine(new Config({ NEBO_HOME: home, ...env }), url);
  const at = ({ findings }: Diagnosis, area: string) => findings.find((finding) => finding.area === area);

  /** A gateway's `/healthz` that answers as told. */
  const serving = async <T>(status: number, body: object, work: (url: string) => Promise<T>): Promise<T> => {
    const server: Server = createServer((_request, response) => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    try {
      return await work(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  };

  it('says without a server what would do the work here, and why', async () => {
    const found = await look(simulated);
    expect(found).toMatchObject({ ok: true, running: false });
    expect(found.findings.map(({ area }) => area)).toEqual([
      'installation',
      'data folder',
      'database',
      'bus',
      'builds',
      'replicas',
      'networks',
      'machines',
      'languages',
      'container engine',
      'git hosts',
      'dns',
      'inference',
      'traces',
      'usage export',
    ]);
    expect(at(found, 'database')).toMatchObject({
      in_use: `embedded PostgreSQL in ${home}/postgres`,
      why: 'DATABASE_URL is not set',
    });
    for (const area of ['builds', 'replicas'])
      expect(at(found, area)).toMatchObject({
        state: 'note',
        in_use: 'simulated, NOT isolated from this machine',
        why: expect.stringMatching(/^plain processes.*, asked for by NEBO_DRIVERS$/),
      });
    expect(at(found, 'inference')!.in_use).toMatch(/^the built-in simulator for \d+ models$/);
    const text = doctorText(found);
    expect(text.split('\n')).toHaveLength(16);
    expect(text).toMatch(/^! replicas +simulated, NOT isolated/m);
    expect(text).toMatch(/^ {2}bus +embedded, inside the process +NATS_URL is not set$/m);
  });

  it('looks at this machine itself when nothing is asked for', async () => {
    const found = await look({});
    expect(at(found, 'builds')!.why).toMatch(
      /bubblewrap, network namespaces and nftables work here|this host lacks/,
    );
  });

  it('says which languages apps can be in, and what to install for the others', async () => {
    const bare = await look({ ...simulated, PATH: '', GOROOT: '' });
    const languages = at(bare, 'languages')!;
    expect(languages.in_use).toContain(`Node ${process.versions.node}`);
    for (const [name, advice] of [
      ['Go ', 'golang-go'],
      ['Python ', 'python3'],
    ] as const)
      expect([name, languages.in_use.includes(name) !== languages.why.includes(advice)]).toEqual([
        name,
        true,
      ]);
  });

  it('asks the container engine whether it answers', async () => {
    const engine = async (env: Record<string, string>) =>
      at(await look({ ...simulated, ...env }), 'container engine');
    expect(await engine({ NEBO_CONTAINER_ENGINE: 'off' })).toMatchObject({
      ...{ state: 'note', in_use: 'none' },
      why: expect.stringMatching(/^NEBO_CONTAINER_ENGINE is off/),
    });
    expect(await engine({ NEBO_CONTAINER_ENGINE: 'docker' })).toMatchObject({
      ...{ state: 'bad', why: expect.stringMatching(/^NEBO_CONTAINER_ENGINE must be "off" or the path/) },
    });
    const socket = join(home, 'engine.sock');
    const none = await engine({ NEBO_CONTAINER_ENGINE: socket });
    expect(none).toMatchObject({ state: 'note', why: expect.stringContaining(`none answers at ${socket}`) });
    const server = createServer((request, response) =>
      response.end(request.url === '/version' ? '{"Version":"9.1","Os":"linux"}' : 'OK'),
    );
    await new Promise<void>((resolve) => server.listen(socket, resolve));
    try {
      expect(await engine({ NEBO_CONTAINER_ENGINE: socket })).toMatchObject({
        ...{ state: 'ok', in_use: `Docker 9.1 (${socket})` },
        why: 'builds of Dockerfiles, whose steps have the network "none"',
      });
    } finally {
      await new Promise((resolve) => server.close(resolve));
    }
  });

  it('names what the environment gives, without a password', async () => {
    const found = await look({
      ...simulated,
      DATABASE_URL: 'postgres://nebo:hunter2@db.example:5432/cloud',
      NATS_URL: 'nats://user:hunter2@nats-1:4222,nats-2:4222',
      NEBO_KAFKA_BROKERS: 'kafka:9092',
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318',
    });
    expect(at(found, 'database')).toMatchObject({ in_use: 'postgres://db.example:5432/cloud' });
    expect(at(found, 'bus')).toMatchObject({ in_use: 'NATS nats://nats-1:4222, nats-2:4222' });
    expect(at(found, 'usage export')).toMatchObject({ in_use: 'Kafka kafka:9092' });
    expect(at(found, 'traces')).toMatchObject({ in_use: 'http://collector:4318/' });
    expect(JSON.stringify(found)).not.toContain('hunter2');
  });

  it('names the OAuth apps of git hosts, never their secrets, and what is wrong with their file', async () => {
    expect(at(await look(simulated), 'git hosts')).toMatchObject({ state: 'ok', in_use: 'by token only' });
    const file = join(home, 'git.yaml');
    const env = { ...simulated, NEBO_GIT_CONFIG: file, NEBO_PUBLIC_URL: 'https://nebo.example' };
    const app = (more: string) => `{ provider: gitea, base_url: "https://git.example.org/", ${more} }`;
    writeFileSync(
      file,
      `oauth_apps: [${app('client_id: abc, client_secret_env: GITEA_SECRET')}, { provider: github, client_id: 7, client_secret_env: GITEA_SECRET }]`,
    );
    const found = await look({ ...env, GITEA_SECRET: 'hunter2' });
    expect(at(found, 'git hosts')).toEqual({
      area: 'git hosts',
      state: 'ok',
      in_use: 'by token; OAuth apps: gitea (https://git.example.org/), github',
      why: file,
    });
    expect(JSON.stringify(found)).not.toContain('hunter2');
    const wrong = async (text: string) => {
      writeFileSync(file, text);
      const { state, why } = at(await look({ ...env, GITEA_SECRET: 'x' }), 'git hosts')!;
      return `${state}: ${why.replace(`${file}: `, '')}`;
    };
    expect(await wrong(`oauth_apps: [${app('client_id: abc, client_secret_env: ABSENT')}]`)).toContain(
      'ABSENT is not set',
    );
    expect(await wrong(`oauth_apps: [${app('client_secret_env: GITEA_SECRET')}]`)).toContain(
      'needs client_id',
    );
    expect(await wrong(`oauth_apps: [${app('client: abc')}]`)).toContain('does not know "client"');
    expect(await wrong('oauth_apps: [{ provider: gitflic }]')).toContain('gitflic" has no OAuth apps');
    expect(await wrong('oauth_apps: [{ provider: gitea }]')).toContain('gitea needs its base_url');
    expect(await wrong('oauth_apps: 1')).toBe('bad: oauth_apps must be a list');
    expect(await wrong('a: b: c')).toContain('is no YAML');
    const same = app('client_id: abc, client_secret_env: GITEA_SECRET');
    expect(await wrong(`oauth_apps: [${same}, ${same}]`)).toContain('is there already');
  });

  it('says where names are answered, and what zones are delegated to', async () => {
    expect(at(await look(simulated), 'dns')).toEqual({
      area: 'dns',
      state: 'note',
      in_use: 'built-in, 127.0.0.1:5354 (UDP and TCP)',
      why: 'NEBO_NAMESERVERS is not set: zones are to be delegated to ns1.apps.localhost, ns2.apps.localhost',
    });
    const env = { ...simulated, NEBO_NAMESERVERS: 'ns1.nebo.example,ns2.nebo.example', NEBO_DNS_PORT: '53' };
    expect(at(await look(env), 'dns')).toMatchObject({
      state: 'ok',
      why: 'zones are delegated to ns1.nebo.example, ns2.nebo.example',
    });
    expect(at(await look({ ...simulated, NEBO_NAMESERVERS: 'not a name' }), 'dns')).toMatchObject({
      state: 'bad',
    });
  });

  it('names the upstreams of the inference file, and what is wrong with it', async () => {
    const file = join(home, 'inference.yaml');
    const env = { ...simulated, NEBO_INFERENCE_CONFIG: file };
    writeFileSync(
      file,
      'providers:\n  glm: { base_url: "https://glm.example/v1", api_key_env: GLM_KEY, dialect: zhipu }\n' +
        'models:\n  glm-5.3:\n    upstreams: [{ provider: glm }]\n',
    );
    expect(at(await look({ ...env, GLM_KEY: 'secret-key' }), 'inference')).toEqual({
      area: 'inference',
      state: 'ok',
      in_use: 'glm (https://glm.example/v1) for 1',
      why: file,
    });
    const without = await look(env);
    expect(without.ok).toBe(false);
    expect(at(without, 'inference')).toMatchObject({ state: 'bad', why: expect.stringContaining('GLM_KEY') });
    const absent = await look({ ...simulated, NEBO_INFERENCE_CONFIG: '/no/such.yaml' });
    expect(at(absent, 'inference')).toMatchObject({
      state: 'bad',
      why: expect.stringContaining('/no/such.yaml'),
    });
    expect(at(await look({ NEBO_DRIVERS: 'builds=magic' }), 'drivers')).toMatchObject({
      state: 'bad',
      why: expect.stringContaining('magic'),
    });
  });

  it('says how the running installation is', async () => {
    const parts = [
      { name: 'identity-billing', ok: true, required: true },
      { name: 'edge', ok: true, required: true },
    ];
    const well = await serving(200, { ok: true, parts }, (url) => look(simulated, url));
    expect(well).toMatchObject({ ok: true, running: true });
    expect(at(well, 'installation')).toMatchObject({ state: 'ok', why: 'all 2 parts are ready' });

    const ill = [
      { name: 'compute', ok: false, required: true, detail: 'postgres: refused; bus: away' },
      ...parts,
    ];
    const found = await serving(503, { ok: false, parts: ill }, (url) => look(simulated, url));
    expect(found).toMatchObject({ ok: false, running: true });
    expect(at(found, 'installation')).toMatchObject({
      state: 'bad',
      why: expect.stringContaining('compute'),
    });
    expect(at(found, 'database')).toMatchObject({
      state: 'bad',
      why: 'DATABASE_URL is not set; postgres: refused',
    });
    expect(at(found, 'bus')).toMatchObject({ state: 'note', why: 'NATS_URL is not set; bus: away' });
  });
});
