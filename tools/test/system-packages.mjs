/**
 * Installs the Debian packages that tests use, where this machine lets us (root and apt); otherwise says which are missing
 * and which tests will skip for it. Nothing here is needed by `npm start`.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { ensureDebianPackages } from '../../libs/test-kit/src/debian.ts';

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
  { package: 'git', file: ['/usr/lib/git-core/git-http-backend'], for: 'apps from git repositories' },
  { package: 'dnsmasq-base', file: ['/usr/sbin/dnsmasq'], for: 'VPCs with real packets' },
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

// helm is built by the Go tool chain (minutes), so only where somebody asked for it; without it the chart's tests say so.
if (process.env.NEBO_INSTALL_HELM === '1') {
  spawnSync(process.execPath, [fileURLToPath(new URL('../deploy/install-helm.mjs', import.meta.url))], {
    stdio: 'inherit',
  });
}
