/**
 * Installs what the chart's test against a real Kubernetes needs: its API server and controllers as one program,
 * `<GOPATH>/bin/nebo-kubernetes`, and etcd (a Debian package): `node tools/deploy/install-kubernetes.mjs`. Never called by a
 * test: it builds for ten to twenty-five minutes, and needs the Go module proxy. Where Go's absence makes it pointless it says so and
 * ends well. `--where` only says where they are (a cache key of the tests).
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { goFolder } from '../../deploy/test/support/find-helm.mjs';
import { findKubernetes, kubernetesProgram } from '../../deploy/test/support/find-kubernetes.mjs';

const folder = fileURLToPath(new URL('kubernetes', import.meta.url));

/** The release in go.mod; the program says it of itself, and clients go by it. */
function linked() {
  const [, major, minor, patch] = /^\tk8s\.io\/kubernetes v(\d+)\.(\d+)\.(\d+)$/m.exec(
    readFileSync(join(folder, 'go.mod'), 'utf8'),
  );
  const version = { gitVersion: `v${major}.${minor}.${patch}`, gitMajor: major, gitMinor: minor };
  return Object.entries(version).map(([name, value]) => `-X k8s.io/component-base/version.${name}=${value}`);
}

const say = () => {
  const { kubernetes, etcd } = findKubernetes();
  console.log(`kubernetes: ${kubernetes ?? 'not here'}; etcd: ${etcd ?? 'not here'}`);
  return kubernetes !== null && etcd !== null;
};

async function install() {
  const { kubernetes, etcd } = findKubernetes();
  if (etcd === null) {
    // Only here: `--where` has to run on a Node that reads no TypeScript too.
    const { ensureDebianPackages } = await import('../../libs/test-kit/src/debian.ts');
    const { reason } = await ensureDebianPackages(['etcd-server']);
    if (reason) console.error(`etcd is not installed: ${reason}`);
  }
  if (kubernetes !== null) return say();
  if (spawnSync('go', ['version']).status !== 0) {
    console.error('there is no Go to build Kubernetes with: the chart’s test against it skips');
    return true;
  }
  const bin = join(goFolder(), 'bin');
  mkdirSync(bin, { recursive: true });
  console.error('… go build of Kubernetes’ API server and controllers (ten to twenty-five minutes)');
  const args = ['build', '-trimpath', `-ldflags=-s -w ${linked().join(' ')}`];
  const done = spawnSync('go', [...args, '-o', join(bin, kubernetesProgram), '.'], {
    cwd: folder,
    env: { ...process.env, CGO_ENABLED: '0' },
    stdio: 'inherit',
    timeout: 3_600_000,
  });
  if (done.status !== 0)
    console.error(
      `install-kubernetes: go build ended with ${done.status ?? done.error?.message ?? done.signal}`,
    );
  return say();
}

if (process.argv.includes('--where')) say();
else if (!(await install())) process.exitCode = 1;
