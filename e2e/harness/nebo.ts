import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ApiAnswer } from './api.js';
import { freePorts } from './ports.mjs';
import { root } from './root.js';

export { root };

/** What `npm start` writes for people and scripts. */
export interface Credentials {
  base_url: string;
  ai_url: string;
  edge_url: string;
  edge_tls_url: string;
  dns_address: string;
  accounts: {
    name: string;
    account_id: string;
    project_id: string;
    api_key: string;
    inference_key: string;
  }[];
}

/** An installation as a user starts it: its own process, data folder and ports. */
export class Nebo {
  private child: ChildProcess | undefined;
  /** All that it printed. */
  output = '';
  credentials!: Credentials;

  private constructor(
    readonly home: string,
    readonly env: Record<string, string>,
  ) {}

  /** Starts on empty data and waits until it is ready. */
  static async start(env: Record<string, string> = {}): Promise<Nebo> {
    const home = mkdtempSync(join(tmpdir(), 'nebo-e2e-'));
    const [api, ai, edge, tls, dns] = await freePorts(5);
    const nebo = new Nebo(home, {
      NEBO_HOME: home,
      NEBO_API_PORT: `${api}`,
      NEBO_AI_PORT: `${ai}`,
      NEBO_EDGE_PORT: `${edge}`,
      NEBO_EDGE_TLS_PORT: `${tls}`,
      NEBO_DNS_PORT: `${dns}`,
      ...env,
    });
    await nebo.up();
    return nebo;
  }

  get pid(): number {
    return this.child!.pid!;
  }

  /** Starts (again) on the same data and ports. */
  async up(): Promise<void> {
    this.output = '';
    const child = spawn(process.execPath, ['apps/all-in-one/dist/main.js'], {
      cwd: root,
      env: { ...process.env, ...this.env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.child = child;
    const keep = (chunk: Buffer) => (this.output += chunk.toString());
    child.stdout!.on('data', keep);
    child.stderr!.on('data', keep);
    await until(async () => {
      if (child.exitCode !== null) throw new Error(`Nebo ended with ${child.exitCode}:\n${this.output}`);
      const answer = await fetch(
        `http://${this.env.NEBO_BIND ?? '127.0.0.1'}:${this.env.NEBO_API_PORT}/healthz`,
      ).catch(() => null);
      return answer?.status === 200;
    }, 60_000).catch((error: Error) => {
      child.kill('SIGKILL');
      throw new Error(`${error.message}\n${this.output}`);
    });
    this.credentials = JSON.parse(readFileSync(join(this.home, 'credentials.json'), 'utf8')) as Credentials;
  }

  /** Ends it. @returns milliseconds until the process was gone, and its exit code */
  async down(signal: NodeJS.Signals = 'SIGTERM'): Promise<{ ms: number; code: number | null }> {
    const { child } = this;
    if (!child || child.exitCode !== null || child.signalCode !== null)
      return { ms: 0, code: child?.exitCode ?? null };
    const begun = Date.now();
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    child.kill(signal);
    const limit = setTimeout(() => child.kill('SIGKILL'), 15_000);
    await ended;
    clearTimeout(limit);
    return { ms: Date.now() - begun, code: child.exitCode };
  }

  /** Ends it and removes its data. */
  async dispose(): Promise<void> {
    await this.down();
    rmSync(this.home, { recursive: true, force: true });
  }

  /** An operator's command. @throws Error with what it printed */
  async admin(...words: string[]): Promise<ApiAnswer['body']> {
    const { code, stdout, stderr } = await run(
      process.execPath,
      ['apps/all-in-one/dist/admin.js', ...words, '--json'],
      this.env,
    );
    if (code !== 0) throw new Error(`admin ${words.join(' ')}: exit ${code}: ${stderr}`);
    return JSON.parse(stdout);
  }
}

/** Runs a program to its end. */
export function run(
  command: string,
  args: string[],
  env: Record<string, string> = {},
  cwd = root,
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (chunk) => (stdout += chunk));
    child.stderr.on('data', (chunk) => (stderr += chunk));
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, stdout, stderr }));
  });
}

/** Waits for a condition. @throws Error when it has not come true in time */
export async function until(
  condition: () => Promise<boolean> | boolean,
  ms = 30_000,
  everyMs = 50,
): Promise<void> {
  const end = Date.now() + ms;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`waited ${ms} ms in vain`);
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}
