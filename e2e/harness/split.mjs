/**
 * The split form: every service as a process of its own, over a real NATS, as the Helm chart runs them. Used by the
 * end-to-end suite and the benches; `npm run start:split` runs it for people.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { nodeBinary, root } from '../../tools/start/node-binary.mjs';
import { freePort } from './ports.mjs';

const services = ['identity-billing', 'compute', 'networking', 'dns', 'apps-builder', 'inference-router'];

/** Path of a nats-server binary, or null. */
export function findNatsServer() {
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/usr/bin', '/usr/local/bin'];
  return folders.map((folder) => join(folder, 'nats-server')).find((path) => existsSync(path)) ?? null;
}

/** One child process with the end of what it printed, for error messages. */
class Part {
  constructor(name, command, args, env, verbose) {
    Object.assign(this, { name, command, args, env, verbose });
    this.up();
  }

  /** Starts it (again), as it was started first. */
  up() {
    this.output = '';
    this.child = spawn(this.command, this.args, {
      cwd: root,
      env: { ...process.env, ...this.env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const keep = (chunk) => {
      this.output = (this.output + chunk).slice(-8_000);
      if (this.verbose) process.stderr.write(chunk);
    };
    this.child.stdout.on('data', keep);
    this.child.stderr.on('data', keep);
  }

  get hasEnded() {
    return this.child.exitCode !== null || this.child.signalCode !== null;
  }

  /** `kill -9`, settled when it is gone. */
  async kill() {
    if (this.hasEnded) return;
    const ended = new Promise((done) => this.child.once('exit', done));
    this.child.kill('SIGKILL');
    await ended;
  }

  /** @throws Error with what it printed when it ends or stays silent */
  async until(url, ms = 60_000, wanted = [200]) {
    const end = Date.now() + ms;
    for (;;) {
      if (this.child.exitCode !== null)
        throw new Error(`${this.name} ended with ${this.child.exitCode}:\n${this.output}`);
      const answer = await fetch(url).catch(() => null);
      await answer?.body?.cancel();
      if (wanted.includes(answer?.status)) return;
      if (Date.now() > end) throw new Error(`${this.name} is not ready after ${ms} ms:\n${this.output}`);
      await new Promise((done) => setTimeout(done, 50));
    }
  }

  async stop() {
    if (this.hasEnded) return;
    const ended = new Promise((done) => this.child.once('exit', done));
    this.child.kill('SIGTERM');
    const limit = setTimeout(() => this.child.kill('SIGKILL'), 12_000);
    await ended;
    clearTimeout(limit);
  }
}

/** Runs an operator's command against the split installation. */
async function admin(env, words) {
  const part = new Part(
    'admin',
    nodeBinary(),
    ['apps/all-in-one/dist/admin.js', ...words, '--json'],
    env,
    false,
  );
  const code = await new Promise((done) => part.child.once('close', done));
  if (code !== 0) throw new Error(`admin ${words.join(' ')}: ${part.output}`);
  return JSON.parse(part.output);
}

/**
 * Starts everything on empty data.
 * @param {{ verbose?: boolean, env?: Record<string, string>, only?: string[] }} [options] `only`: these services beside
 *   identity-billing, which is always there, and no edge
 */
export async function startSplit({ verbose = false, env: more = {}, only } = {}) {
  const natsServer = findNatsServer();
  if (!natsServer) throw new Error('nats-server is not here (Debian package nats-server)');
  const { startEmbeddedPostgres } = await import('../../libs/embedded-postgres/dist/index.js');
  const home = mkdtempSync(join(tmpdir(), 'nebo-split-'));
  const parts = [];
  const start = (name, command, args, env) => {
    const part = new Part(name, command, args, env, verbose);
    parts.push(part);
    return part;
  };
  const postgres = await startEmbeddedPostgres(home, 'split');
  const stop = async () => {
    for (const part of parts.filter((one) => one.hasEnded))
      console.error(
        `${part.name} had ended with ${part.child.exitCode ?? part.child.signalCode}:\n${part.output}`,
      );
    // Doors first, then what they lean on.
    for (const part of [...parts].reverse()) await part.stop();
    await postgres.stop();
    rmSync(home, { recursive: true, force: true });
  };
  try {
    const natsPort = await freePort();
    const natsMonitor = await freePort();
    mkdirSync(join(home, 'nats'));
    const nats = start(
      'nats-server',
      natsServer,
      ['-js', '-sd', join(home, 'nats'), '-a', '127.0.0.1', '-p', `${natsPort}`, '-m', `${natsMonitor}`],
      {},
    );
    await nats.until(`http://127.0.0.1:${natsMonitor}/healthz`);
    const ports = {
      api: await freePort(),
      ai: await freePort(),
      edge: await freePort(),
      edgeTls: await freePort(),
      dns: await freePort(),
    };
    const env = {
      NEBO_HOME: home,
      DATABASE_URL: postgres.url,
      NATS_URL: `nats://127.0.0.1:${natsPort}`,
      NEBO_LOG_LEVEL: 'warn',
      NEBO_API_PORT: `${ports.api}`,
      NEBO_AI_PORT: `${ports.ai}`,
      NEBO_EDGE_PORT: `${ports.edge}`,
      NEBO_EDGE_TLS_PORT: `${ports.edgeTls}`,
      NEBO_DNS_PORT: `${ports.dns}`,
      NEBO_RATE_LIMIT: '0',
      // Edge and agent are a pair on one host here.
      NEBO_WAKE: `unix:${join(home, 'wake.sock')}`,
      ...more,
    };
    for (const service of services) {
      const port = await freePort();
      const name = service.toUpperCase().replaceAll('-', '_');
      // NEBO_DNS_PORT is the name server's.
      env[service === 'dns' ? 'NEBO_DNS_HTTP_PORT' : `NEBO_${name}_PORT`] = `${port}`;
      env[`NEBO_${name}_URL`] = `http://127.0.0.1:${port}`;
    }
    const main = (service, extra = {}) =>
      start(service, nodeBinary(), [`apps/${service}/dist/main.js`], { ...env, ...extra });
    // The master key is made by the first process; the others must find it.
    const first = main('identity-billing');
    await first.until(`${env.NEBO_IDENTITY_BILLING_URL}/healthz`);
    const running = services
      .slice(1)
      .filter((service) => !only || only.includes(service))
      .map((service) => [
        main(service),
        `${env[`NEBO_${service.toUpperCase().replaceAll('-', '_')}_URL`]}/healthz`,
      ]);
    await Promise.all(running.map(([part, url]) => part.until(url)));
    // Where services are left out it is never ready, and serves the others.
    await main('api-gateway').until(
      `http://127.0.0.1:${ports.api}/healthz`,
      60_000,
      only ? [200, 503] : [200],
    );
    const [region] = (await admin(env, ['region', 'list'])).data;
    const { token } = await admin(env, ['region', 'token', '--region', region.id]);
    const agentHome = join(home, 'agent');
    mkdirSync(agentHome);
    main('region-agent', {
      NEBO_HOME: agentHome,
      NEBO_API_URL: `http://127.0.0.1:${ports.api}`,
      NEBO_REGION_TOKEN: token,
    });
    if (!only) {
      const edge = main('edge', { NEBO_MASTER_KEY_FILE: join(home, 'master.key') });
      // It serves nothing yet, but it is there.
      await edge.until(`http://127.0.0.1:${env.NEBO_EDGE_PORT}/`, 60_000, [400, 404, 503]);
    }
    const account = await admin(env, ['account', 'create', '--name', 'split', '--topup', '1000000']);
    const key = await admin(env, ['key', 'create', '--account', account.account_id]);
    const inferenceKey = await admin(env, ['inference-key', 'create', '--account', account.account_id]);
    return {
      home,
      env,
      stop,
      pids: parts.map((part) => part.child.pid),
      parts: Object.fromEntries(parts.map((part) => [part.name, part])),
      admin: (...words) => admin(env, words),
      baseUrl: `http://127.0.0.1:${ports.api}/v1`,
      aiUrl: `http://127.0.0.1:${ports.ai}`,
      edgeUrl: `http://127.0.0.1:${ports.edge}`,
      dnsAddress: `127.0.0.1:${ports.dns}`,
      key: key.key,
      inferenceKey: inferenceKey.key,
      credentials: {
        accounts: [
          {
            account_id: account.account_id,
            project_id: account.project_id,
            api_key: key.key,
            inference_key: inferenceKey.key,
          },
        ],
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}
