import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packFolder } from '@nebo/archive';
import { type BuildSpec, type EnvEntry, type ReplicaSpec, type RunSpec } from '@nebo/contracts';
import { type FakeControlPlane } from './fake-control-plane.js';

/** Packs files (path → text) and gives them to the control plane as a blob. */
export async function blobOf(
  plane: FakeControlPlane,
  files: Record<string, string>,
): Promise<{ sha256: string; bytes: number }> {
  const dir = await mkdtemp(join(tmpdir(), 'nebo-src-'));
  try {
    for (const [path, text] of Object.entries(files)) {
      await mkdir(join(dir, path, '..'), { recursive: true });
      await writeFile(join(dir, path), text);
    }
    const parts: Buffer[] = [];
    for await (const part of (await packFolder(dir, { ignoreRules: 'none' })).stream)
      parts.push(part as Buffer);
    return plane.put(Buffer.concat(parts));
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/** A build of a source with nothing set. */
export async function buildOf(
  plane: FakeControlPlane,
  id: string,
  files: Record<string, string>,
  more: Partial<BuildSpec> = {},
): Promise<{ kind: 'build'; spec: BuildSpec }> {
  const spec: BuildSpec = {
    account_id: 'account',
    app_id: 'app',
    app_type: 'frontend',
    source: await blobOf(plane, files),
    framework: null,
    nodejs_version: null,
    root_directory: null,
    install_command: null,
    build_command: null,
    start_command: null,
    output_directory: null,
    env: [],
    log_stream: `build-${id}`,
    ...more,
  };
  return { kind: 'build', spec };
}

/** A replica that runs `server.js`. */
export async function replicaOf(
  plane: FakeControlPlane,
  id: string,
  server: string,
  more: Partial<ReplicaSpec> = {},
): Promise<{ kind: 'replica'; spec: ReplicaSpec }> {
  const spec: ReplicaSpec = {
    account_id: 'account',
    app_id: 'app',
    build_id: 'build',
    artifact: await blobOf(plane, { 'server.js': server }),
    start_command: 'node server.js',
    vcpu: 1,
    memory_mb: 256,
    readiness_path: '/',
    ready_timeout_ms: 15_000,
    env: [],
    log_stream: `replica-${id}`,
    ...more,
  };
  return { kind: 'replica', spec };
}

/** A run of a command in a folder with one file. */
export async function runOf(
  plane: FakeControlPlane,
  id: string,
  command: string,
  more: Partial<RunSpec> = {},
): Promise<{ kind: 'run'; spec: RunSpec }> {
  const spec: RunSpec = {
    account_id: 'account',
    app_id: 'app',
    build_id: 'build',
    artifact: await blobOf(plane, { 'words.txt': 'from the artifact' }),
    command,
    vcpu: 1,
    memory_mb: 256,
    timeout_ms: 30_000,
    begun: false,
    env: [],
    log_stream: `run-${id}`,
    ...more,
  };
  return { kind: 'run', spec };
}

/** A server that tells what it sees. */
export const helloServer = `
const http = require('node:http');
http.createServer((req, res) => {
  console.log('request ' + req.url);
  res.end(JSON.stringify({ hello: process.env.GREETING ?? 'world', path: req.url, pid: process.pid }));
}).listen(process.env.PORT, process.env.HOST, () => console.log('listening, key ' + process.env.KEY));
`;

export const secret = (name: string, value: string): EnvEntry => ({ name, value, secret: true });
export const plain = (name: string, value: string): EnvEntry => ({ name, value, secret: false });
