/**
 * Installs the Debian packages that tests use, where this machine lets us (root and apt); otherwise says which are missing
 * and which tests will skip for it. Nothing here is needed by `npm start`.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureDebianPackages } from '../../libs/test-kit/src/debian.ts';
import { buildTinyImage, hasTinyImage } from '../tiny-image/build.mjs';

const wanted = [
  {
    package: 'nats-server',
    file: ['/usr/sbin/nats-server', '/usr/bin/nats-server'],
    for: 'the bus on a real NATS',
  },
  { package: 'bubblewrap', file: ['/usr/bin/bwrap'], for: 'sandboxed builds and replicas' },
  { package: 'iproute2', file: ['/usr/sbin/ip', '/sbin/ip', '/usr/bin/ip'], for: 'networks of replicas' },
  { package: 'nftables', file: ['/usr/sbin/nft'], for: 'firewalls of replicas and VPCs' },
  { package: 'knot', file: ['/usr/sbin/knotd'], for: 'answers of the name server compared with knot' },
  { package: 'bind9-dnsutils', file: ['/usr/bin/dig'], for: 'the name server asked by dig' },
  { package: 'pebble', file: ['/usr/bin/pebble'], for: 'certificates from a real ACME authority' },
  { package: 'git', file: ['/usr/lib/git-core/git-http-backend'], for: 'apps from git repositories' },
  { package: 'dnsmasq-base', file: ['/usr/sbin/dnsmasq'], for: 'VPCs with real packets' },
  { package: 'conntrack', file: ['/usr/sbin/conntrack'], for: 'VPCs with real packets' },
  { package: 'busybox-static', file: ['/bin/busybox', '/usr/bin/busybox'], for: 'apps from images' },
  { package: 'docker.io', file: ['/usr/sbin/dockerd'], for: 'apps with a Dockerfile, by a real engine' },
  { package: 'podman', file: ['/usr/bin/podman'], for: 'apps with a Dockerfile, by Podman' },
  { package: 'runc', file: ['/usr/sbin/runc'], for: 'apps with a Dockerfile, by Podman' },
  { package: 'qemu-system-x86', file: ['/usr/bin/qemu-system-x86_64'], for: 'real machines' },
  { package: 'qemu-utils', file: ['/usr/bin/qemu-img'], for: 'real machines' },
];
const missing = wanted.filter(({ file }) => !file.some((path) => existsSync(path)));
if (missing.length > 0) {
  console.error(`… installing ${missing.map((part) => part.package).join(', ')} for the tests`);
  const { reason } = await ensureDebianPackages(missing.map((part) => part.package));
  for (const part of missing) {
    if (!part.file.some((path) => existsSync(path))) {
      console.error(
        `  ${part.package} is not here, so tests of ${part.for} skip: ${reason ?? 'not installed'}`,
      );
    }
  }
}

// Once, and again when its recipe has changed: the cache folder of tests keeps it.
const { NEBO_TEST_CACHE: own, XDG_CACHE_HOME: cache = join(userInfo().homedir, '.cache') } = process.env;
const image = join(own || join(cache, 'nebo', 'test-kit'), 'tiny-image');
if (!(await hasTinyImage(image))) {
  console.error('… making the tiny image for tests of real machines');
  await buildTinyImage(image).catch((error) => {
    console.error(`  there is no tiny image, so tests of real machines skip: ${error.message}`);
  });
}

// helm is built by the Go tool chain (minutes), so only where somebody asked for it; without it the chart's tests say so.
if (process.env.NEBO_INSTALL_HELM === '1') {
  spawnSync(process.execPath, [fileURLToPath(new URL('../deploy/install-helm.mjs', import.meta.url))], {
    stdio: 'inherit',
  });
}
