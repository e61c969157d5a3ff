import { execFile, spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { cacheFolder } from '@nebo/test-kit';

const run = promisify(execFile);
/** Only as a proof (`npm run proof -- cgroups`): a kernel of its own, without a processor's help, takes a minute. */
const wanted = Number(process.env['NEBO_PROOF'] || 0) > 0;
const image = join(cacheFolder(), 'tiny-image');
const missing = [
  '/usr/bin/qemu-system-x86_64',
  '/usr/sbin/mke2fs',
  '/usr/bin/unshare',
  join(image, 'tiny-1.vmlinux'),
].find((path) => !existsSync(path));
const why = !wanted
  ? ' (SKIPPED: only as a proof, npm run proof -- cgroups)'
  : missing === undefined
    ? ''
    : ` (SKIPPED: ${missing} is not here)`;
const busybox = ['/bin/busybox', '/usr/bin/busybox'].find((path) => existsSync(path))!;

/** What the kernel runs first: groups of version 2 and nothing else of that kind. */
const init = `#!/bin/sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module.ko" 2>/dev/null; done </modules/order
mkdir -p /data && mount -t ext4 /dev/vda /data
for name in proc sys dev; do mount --bind /$name /data/$name; done
mount -t cgroup2 none /data/sys/fs/cgroup
chroot /data /bin/node /program.mjs
echo "guest ended with $?"
sync
poweroff -f
`;

/** The agent on a kernel of its own. */
(wanted && missing === undefined ? describe : describe.skip)(
  `groups of version 2, by a kernel that has no others${why}`,
  () => {
    it('limits memory, processes and processor time, says what broke them, and works in a container', async () => {
      const dir = await mkdtemp(join(tmpdir(), 'nebo-guest-'));
      try {
        const tree = join(dir, 'tree');
        for (const name of ['bin', 'proc', 'sys', 'dev', 'tmp'])
          await mkdir(join(tree, name), { recursive: true });
        await build({
          entryPoints: [fileURLToPath(new URL('guest/cgroups-program.ts', import.meta.url))],
          ...{ outfile: join(tree, 'program.mjs'), bundle: true, platform: 'node', format: 'esm' },
          ...{ conditions: ['nebo-src'], logLevel: 'error' },
        });
        for (const [from, to] of [
          [process.execPath, 'bin/node'],
          ['/usr/bin/unshare', 'bin/unshare'],
          [busybox, 'bin/busybox'],
        ] as const) {
          await cp(from, join(tree, to), { dereference: true });
          const { stdout } = await run('ldd', [from]).catch(() => ({ stdout: '' }));
          for (const [, library] of stdout.matchAll(/(\/\S+) \(0x/g)) {
            await mkdir(dirname(join(tree, library!)), { recursive: true });
            await cp(library!, join(tree, library!), { dereference: true });
          }
        }
        for (const name of ['sh', 'dd', 'sleep', 'mount', 'umount'])
          await symlink('busybox', join(tree, 'bin', name));
        const disk = join(dir, 'disk');
        await run('mke2fs', ['-q', '-F', '-t', 'ext4', '-d', tree, disk, '400M'], {
          env: { PATH: '/usr/sbin:/usr/bin' },
        });
        // A second archive behind the first one: its /init takes the place of the tiny image's.
        await writeFile(join(dir, 'init'), init, { mode: 0o755 });
        const own = spawnSync(busybox, ['cpio', '-o', '-H', 'newc'], { cwd: dir, input: 'init\n' }).stdout;
        const initrd = Buffer.concat([await readFile(join(image, 'tiny-1.initrd.gz')), gzipSync(own)]);
        await writeFile(join(dir, 'initrd'), initrd);
        const said = await boot(
          ['-kernel', join(image, 'tiny-1.vmlinux'), '-initrd', join(dir, 'initrd')],
          disk,
        );
        const lines = said
          .split(/\r?\n/)
          .filter((line) => line.startsWith('check ') || line.startsWith('guest '));
        expect(lines.filter((line) => !line.startsWith('check ok'))).toEqual([
          'check end',
          'check end',
          'guest ended with 0',
        ]);
        expect(lines.length).toBeGreaterThan(20);
      } finally {
        await rm(dir, { recursive: true, force: true });
      }
    }, 600_000);
  },
);

/** Starts a machine and gives what its console said until it ended. */
function boot(kernel: string[], disk: string): Promise<string> {
  const argv = [
    ...[
      '-nodefaults',
      '-no-user-config',
      '-display',
      'none',
      '-M',
      'q35',
      '-m',
      '640M',
      '-smp',
      '2',
      '-no-reboot',
    ],
    ...['-accel', 'tcg', '-cpu', 'max', '-serial', 'stdio', ...kernel],
    ...['-append', 'console=ttyS0 quiet mitigations=off nokaslr'],
    ...['-drive', `file=${disk},format=raw,if=none,id=disk`, '-device', 'virtio-blk-pci,drive=disk'],
  ];
  return new Promise((resolve, reject) => {
    const child = spawn('qemu-system-x86_64', argv, { stdio: ['ignore', 'pipe', 'inherit'] });
    const late = setTimeout(() => child.kill('SIGKILL'), 560_000);
    let text = '';
    child.stdout.setEncoding('utf8').on('data', (part: string) => (text += part));
    child.once('error', reject).once('close', () => {
      clearTimeout(late);
      resolve(text);
    });
  });
}
