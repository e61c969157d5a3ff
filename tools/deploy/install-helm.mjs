/**
 * Installs helm for the chart's tests into `<GOPATH>/bin`, through `go install`: `node tools/deploy/install-helm.mjs`.
 * Never called by a test. It takes four minutes and needs the Go module proxy; where helm or Go's absence makes it
 * pointless it says so and ends well. `--where` only says where helm is (a cache key of the tests).
 */
import { spawnSync } from 'node:child_process';
import { findHelm, goFolder } from '../../deploy/test/support/find-helm.mjs';

const version = process.env.NEBO_HELM_VERSION ?? 'v3.19.0';
const pkg = `helm.sh/helm/v3/cmd/helm@${version}`;

/** Without these helm believes in Kubernetes 1.20 wherever it cannot ask a cluster. */
const linked = [
  `-X helm.sh/helm/v3/internal/version.version=${version}`,
  '-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1',
  '-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34',
];

const present = findHelm();
if (present || process.argv.includes('--where')) {
  console.log(present ? `helm is here: ${present}` : 'helm is not here');
} else if (!/^v3\.\d+\.\d+$/.test(version)) {
  console.error(`install-helm: NEBO_HELM_VERSION must look like v3.19.0, not "${version}"`);
  process.exitCode = 2;
} else if (spawnSync('go', ['version']).status !== 0) {
  console.error('helm is not here and neither is Go to build it with: tests of the chart skip');
} else {
  console.error(`… go install ${pkg} (about four minutes)`);
  const env = { ...process.env, GOBIN: `${goFolder()}/bin`, CGO_ENABLED: '0' };
  const args = ['install', '-trimpath', `-ldflags=-s -w ${linked.join(' ')}`, pkg];
  const done = spawnSync('go', args, { env, stdio: 'inherit', timeout: 1_500_000 });
  const found = findHelm();
  if (done.status === 0 && found) console.log(`helm is here: ${found}`);
  else {
    console.error(`install-helm: go install ended with ${done.status ?? done.error?.message ?? done.signal}`);
    process.exitCode = 1;
  }
}
