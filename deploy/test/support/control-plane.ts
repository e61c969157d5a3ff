import { type ChildProcess, spawn } from 'node:child_process';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '@nebo/test-kit';
import { findHelm } from './find-helm.mjs';
import { findKubernetes } from './find-kubernetes.mjs';

const { kubernetes, etcd } = findKubernetes();

/** `describe` where a control plane and helm are, else a skipped one whose name says why. */
export const withKubernetes = (title: string, tests: () => void): void =>
  kubernetes && etcd && findHelm()
    ? describe(title, tests)
    : describe.skip(
        `${title} (${kubernetes && etcd ? 'helm' : 'Kubernetes'} is not here; node tools/deploy/install-${kubernetes && etcd ? 'helm' : 'kubernetes'}.mjs installs it where Go is)`,
        tests,
      );

const startMs = 120_000;

export interface Answer {
  status: number;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- objects of every kind
  body: any;
  /** What the server warns of, such as interfaces that will go. */
  warnings: string[];
}

/** Kubernetes' own API server and controllers over an etcd of the test's own, on loopback. No node runs anything. */
export class ControlPlane {
  private readonly dir = mkdtempSync(join(tmpdir(), 'nebo-kubernetes-'));
  private readonly token = randomBytes(16).toString('hex');
  private readonly children: ChildProcess[] = [];
  private port = 0;

  private constructor() {}

  /** @throws Error with the last words of the part that did not come up */
  static async start(): Promise<ControlPlane> {
    const plane = new ControlPlane();
    try {
      await plane.up();
      return plane;
    } catch (error) {
      await plane.stop();
      throw error;
    }
  }

  /** Path of a kubeconfig of the administrator. */
  get kubeconfig(): string {
    return join(this.dir, 'kubeconfig');
  }

  async stop(): Promise<void> {
    // The controllers first: what they watch goes last.
    for (const child of this.children.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      child.kill('SIGTERM');
      const late = setTimeout(() => child.kill('SIGKILL'), 10_000);
      await once(child, 'exit');
      clearTimeout(late);
    }
    rmSync(this.dir, { recursive: true, force: true });
  }

  /** One request as the administrator. */
  call(method: string, path: string, body?: object, type = 'application/json'): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const ca = readFileSync(join(this.dir, 'certs/apiserver.crt'));
      const headers = { authorization: `Bearer ${this.token}`, 'content-type': type };
      const options = { host: '127.0.0.1', port: this.port, servername: 'kubernetes', ca, agent: false };
      const ask = request({ ...options, method, path, headers }, (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (part: string) => (text += part));
        answer.on('error', reject).on('end', () => {
          const parsed: unknown = text.startsWith('{') ? JSON.parse(text) : text;
          const warnings = [answer.headers['warning'] ?? []].flat().map(String);
          resolve({ status: answer.statusCode!, body: parsed, warnings });
        });
      });
      ask.on('error', reject).end(body && JSON.stringify(body));
    });
  }

  private async up(): Promise<void> {
    const [client, peer, port] = [await freePort(), await freePort(), await freePort()];
    this.port = port;
    const { dir } = this;
    const key = join(dir, 'accounts.pem');
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    writeFileSync(key, privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 });
    writeFileSync(join(dir, 'tokens'), `${this.token},admin,admin,system:masters\n`, { mode: 0o600 });
    const store = `http://127.0.0.1:${client}`;
    this.run('etcd', etcd!, [
      ...['--data-dir', join(dir, 'etcd'), '--listen-client-urls', store, '--advertise-client-urls', store],
      ...['--listen-peer-urls', `http://127.0.0.1:${peer}`, '--unsafe-no-fsync'],
    ]);
    this.run('apiserver', kubernetes!, [
      ...['apiserver', `--etcd-servers=${store}`, `--secure-port=${port}`, '--bind-address=127.0.0.1'],
      ...[`--cert-dir=${join(dir, 'certs')}`, `--token-auth-file=${join(dir, 'tokens')}`],
      ...['--authorization-mode=RBAC', '--service-account-issuer=https://localhost'],
      ...[`--service-account-key-file=${key}`, `--service-account-signing-key-file=${key}`],
      // An address of documentation: nothing is reached by it.
      ...['--service-cluster-ip-range=10.96.0.0/16', '--advertise-address=192.0.2.1'],
      ...['--endpoint-reconciler-type=none', '--allow-privileged=true'],
    ]);
    await this.until('apiserver', async () => (await this.call('GET', '/readyz')).status === 200);
    const cluster = {
      server: `https://127.0.0.1:${port}`,
      'tls-server-name': 'kubernetes',
      'certificate-authority': join(dir, 'certs/apiserver.crt'),
    };
    const config = {
      ...{ apiVersion: 'v1', kind: 'Config', 'current-context': 'test' },
      clusters: [{ name: 'test', cluster }],
      users: [{ name: 'admin', user: { token: this.token } }],
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'admin' } }],
    };
    writeFileSync(this.kubeconfig, JSON.stringify(config), { mode: 0o600 });
    this.run('controllers', kubernetes!, [
      ...['controller-manager', `--kubeconfig=${this.kubeconfig}`, '--leader-elect=false', '--secure-port=0'],
      ...[
        `--service-account-private-key-file=${key}`,
        '--controllers=*,-node-lifecycle-controller,-persistentvolume-binder-controller',
      ],
    ]);
  }

  private run(name: string, program: string, args: string[]): void {
    const log = openSync(join(this.dir, `${name}.log`), 'a');
    this.children.push(spawn(program, args, { stdio: ['ignore', log, log], cwd: this.dir }));
    closeSync(log);
  }

  private async until(name: string, done: () => Promise<boolean>): Promise<void> {
    for (const end = Date.now() + startMs; ; await sleep(200)) {
      if (await done().catch(() => false)) return;
      const dead = this.children.some((child) => child.exitCode !== null || child.signalCode !== null);
      if (!dead && Date.now() < end) continue;
      const file = join(this.dir, `${name}.log`);
      const words = existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(-8).join('\n') : '';
      throw new Error(`${name} did not come up: ${words}`);
    }
  }
}
