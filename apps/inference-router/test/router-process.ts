import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { identityHeader, IdentitySigner, type InferenceIdentity } from '@nebo/contracts';
import { MasterKey } from '@nebo/service-kit';
import { caller, type Ground, testConfig, until } from './harness.js';

/** The service as a process of its own, from source, that a test may kill and start again on the same folder. */
export class RouterProcess {
  private child: ChildProcess | undefined;
  private url = '';
  private readonly home = mkdtempSync(join(tmpdir(), 'nebo-killed-'));

  constructor(private readonly ground: Ground) {
    writeFileSync(join(this.home, 'inference.yaml'), testConfig.replaceAll('{url}', ground.upstream.url));
  }

  /** Starts it and waits until it listens. @throws Error with what it said when it ends instead */
  async start(): Promise<this> {
    const here = fileURLToPath(new URL('../', import.meta.url));
    const program = ['--import', join(here, '../../tools/test/run-ts.mjs'), join(here, 'src/main.ts')];
    const child = spawn(process.execPath, ['--conditions', 'nebo-src', ...program], {
      cwd: here,
      stdio: ['ignore', 'ignore', 'pipe'],
      env: {
        PATH: process.env['PATH'],
        NEBO_HOME: this.home,
        DATABASE_URL: this.ground.databaseUrl,
        NEBO_IDENTITY_BILLING_URL: this.ground.billing.url,
        NEBO_INFERENCE_CONFIG: join(this.home, 'inference.yaml'),
        TEST_VENDOR_KEY: 'x',
        NEBO_INFERENCE_ROUTER_PORT: '0',
      },
    });
    this.child = child;
    let log = '';
    child.stderr.on('data', (data: Buffer) => (log += data.toString()));
    const ready = /"port":(\d+)/;
    await until(
      () => {
        if (child.exitCode !== null) throw new Error(log);
        return ready.test(log);
      },
      `the process is ready: ${log}`,
      40_000,
    );
    this.url = `http://127.0.0.1:${ready.exec(log)![1]}`;
    return this;
  }

  /** Is it ready by its own word? */
  async isReady(): Promise<boolean> {
    return (await fetch(`${this.url}/healthz`).catch(() => null))?.status === 200;
  }

  /** Ends it and waits until it is gone. @returns its exit code; null when it was killed */
  async end(signal: NodeJS.Signals): Promise<number | null> {
    const { child } = this;
    if (!child || child.exitCode !== null || child.signalCode !== null) return null;
    const exit = once(child, 'exit');
    child.kill(signal);
    await exit;
    return child.exitCode;
  }

  chat(body: Record<string, unknown>, identity: InferenceIdentity = caller): Promise<Response> {
    const key = MasterKey.fromFile(join(this.home, 'master.key')).derive('identity');
    return fetch(`${this.url}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        [identityHeader]: new IdentitySigner(key).sign(identity),
      },
      body: JSON.stringify({ model: 'glm-5.3', messages: [{ role: 'user', content: 'hi' }], ...body }),
    });
  }

  async dispose(): Promise<void> {
    await this.end('SIGKILL');
    rmSync(this.home, { recursive: true, force: true });
  }
}
