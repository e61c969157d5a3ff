import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Identity, identityHeader, IdentitySigner, type InferenceIdentity } from '@nebo/contracts';
import { MasterKey } from '@nebo/service-kit';
import {
  type PostgresPart,
  startNats,
  startPostgres,
  startUpstreamModel,
  type UpstreamModel,
} from '@nebo/test-kit';
import pg from 'pg';
import { root, until } from './nebo.js';
import { freePorts } from './ports.mjs';

/** A service as a process of its own, that may be killed and started again. */
export class ServiceProcess {
  private child: ChildProcess | undefined;
  private output = '';

  constructor(
    readonly name: string,
    private readonly port: number,
    private readonly env: Record<string, string>,
  ) {}

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  async up(): Promise<void> {
    const port = `NEBO_${this.name.replaceAll('-', '_').toUpperCase()}_PORT`;
    const child = spawn(process.execPath, [`apps/${this.name}/dist/main.js`], {
      cwd: root,
      env: { ...process.env, ...this.env, [port]: `${this.port}` },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.child = child;
    const keep = (chunk: Buffer) => (this.output = (this.output + chunk.toString()).slice(-8_000));
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    await until(() => {
      if (child.exitCode !== null) throw new Error(`${this.name} ended: ${this.output}`);
      return fetch(`${this.url}/healthz`).then(
        () => true,
        () => false,
      );
    }, 60_000);
  }

  async ready(): Promise<void> {
    await until(async () => (await fetch(`${this.url}/healthz`).catch(() => null))?.status === 200, 60_000);
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    const { child } = this;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, 'exit');
    child.kill(signal);
    await exit;
  }
}

/** identity-billing, three routers of inference, their PostgreSQL and NATS: processes that a test may kill. */
export class MoneyGround {
  billing!: ServiceProcess;
  readonly routers: ServiceProcess[] = [];
  postgres!: PostgresPart;
  upstream!: UpstreamModel;
  databaseUrl = '';
  private readonly home = mkdtempSync(join(tmpdir(), 'nebo-money-'));
  private readonly ends: (() => Promise<unknown>)[] = [];

  static async start(replicas = 3): Promise<MoneyGround> {
    const ground = new MoneyGround();
    await ground.begin(replicas).catch(async (error: unknown) => {
      await ground.dispose();
      throw error;
    });
    return ground;
  }

  private async begin(replicas: number): Promise<void> {
    this.postgres = await startPostgres();
    this.ends.push(() => this.postgres.stop());
    const nats = await startNats();
    this.ends.push(() => nats.stop());
    this.upstream = await startUpstreamModel();
    this.ends.push(() => this.upstream.stop());
    this.databaseUrl = await this.postgres.createDatabase();
    const config = join(this.home, 'inference.yaml');
    writeFileSync(
      config,
      `providers: { glm: { base_url: "${this.upstream.url}", dialect: zhipu } }\nmodels:\n  glm-5.3: { upstreams: [{ provider: glm }], price: { input: "60.00", cache_read: "12.00", output: "240.00" } }\n`,
    );
    const [billing, ...ports] = await freePorts(replicas + 1);
    const env = {
      NEBO_HOME: this.home,
      DATABASE_URL: this.databaseUrl,
      NATS_URL: nats.url,
      NEBO_IDENTITY_BILLING_URL: `http://127.0.0.1:${billing}`,
      NEBO_INFERENCE_CONFIG: config,
      NEBO_UPSTREAM_BREAKER_FAILURES: '0',
    };
    this.billing = new ServiceProcess('identity-billing', billing!, env);
    this.ends.push(() => this.billing.end('SIGKILL'));
    await this.billing.up();
    for (const [index, port] of ports.entries()) {
      const folder = join(this.home, `router-${index}`);
      const router = new ServiceProcess('inference-router', port, { ...env, NEBO_INFERENCE_DIR: folder });
      this.routers.push(router);
      this.ends.push(() => router.end('SIGKILL'));
      await router.up();
    }
    await Promise.all(this.routers.map((router) => router.ready()));
  }

  async dispose(): Promise<void> {
    for (const end of this.ends.splice(0).reverse()) await end();
    rmSync(this.home, { recursive: true, force: true });
  }

  /** An account with so many rubles, and its inference key. */
  async account(rubles: string): Promise<InferenceIdentity> {
    const { account_id } = await this.operator('account-create', { name: 'Test', topup: rubles });
    const { id } = await this.operator('inference-key-create', { account: account_id });
    return { kind: 'inference', account_id: account_id!, key_id: id!, models: null, monthly_limit: null };
  }

  /** Adds money. */
  operator(command: string, body: object): Promise<Record<string, string>> {
    return this.internal('POST', `operator/${command}`, body);
  }

  async internal(method: string, path: string, body?: object): Promise<Record<string, string>> {
    const identity: Identity = { kind: 'service', service: 'operator', account_id: null };
    const answer = await fetch(`${this.billing.url}/internal/v1/${path}`, {
      method,
      headers: {
        [identityHeader]: this.sign(identity),
        ...(body ? { 'content-type': 'application/json' } : {}),
      },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${text}`);
    return JSON.parse(text) as Record<string, string>;
  }

  chat(
    router: ServiceProcess,
    identity: InferenceIdentity,
    body: Record<string, unknown>,
  ): Promise<Response> {
    return fetch(`${router.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', [identityHeader]: this.sign(identity) },
      body: JSON.stringify({ model: 'glm-5.3', messages: [{ role: 'user', content: 'hi' }], ...body }),
    });
  }

  /** Rows of identity-billing's tables, past row-level security. */
  async sql<R>(text: string, values: unknown[]): Promise<R[]> {
    const client = new pg.Client({ connectionString: this.databaseUrl });
    await client.connect();
    try {
      await client.query('set search_path to identity_billing');
      return (await client.query(text, values)).rows as R[];
    } finally {
      await client.end();
    }
  }

  private sign(identity: Identity): string {
    return new IdentitySigner(MasterKey.fromFile(join(this.home, 'master.key')).derive('identity')).sign(
      identity,
    );
  }
}
