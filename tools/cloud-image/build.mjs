/**
 * `npm run cloud-image`: makes an image of Debian for machines, from the packages that this machine's apt is set to use:
 * started by firmware and GRUB, cloud-init, guest agent, SSH by key. Then `npm run admin -- image add` offers it.
 *
 *     npm run cloud-image [-- --out FILE]     default: debian-<suite>.qcow2 in the current folder
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { makeBootable } from './disk.mjs';

const run = promisify(execFile);
/** Programs that the recipe needs, by the Debian package that has them. */
const programs = {
  '/usr/bin/mmdebstrap': 'mmdebstrap',
  '/usr/sbin/mke2fs': 'e2fsprogs',
  '/usr/sbin/sgdisk': 'gdisk',
  '/usr/bin/grub-mkimage': 'grub-common',
  '/usr/lib/grub/i386-pc/boot.img': 'grub-pc-bin',
  '/usr/bin/qemu-img': 'qemu-utils',
};
/** What is installed: a system that boots, cloud-init with what it calls, the guest agent, SSH. */
const packages = [
  ...['systemd-sysv', 'udev', 'dbus', 'linux-image-cloud-amd64', 'e2fsprogs', 'iproute2', 'netbase'],
  ...['systemd-resolved', 'ca-certificates', 'sudo', 'openssh-server', 'qemu-guest-agent'],
  ...['cloud-init', 'cloud-guest-utils'],
];
/** Size of the root file system; cloud-init grows it to the disk of the machine. */
const rootSize = '1900M';
const environment = { ...process.env, PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8' };

const files = {
  'etc/fstab': 'LABEL=root / ext4 defaults,errors=remount-ro 0 1\n',
  // Whoever makes machines of it gives each its own.
  'etc/machine-id': 'uninitialized\n',
  'etc/cloud/cloud.cfg.d/90-nebo.cfg':
    'datasource_list: [NoCloud, None]\n# C.UTF-8 is what there is, without a package of locales.\nlocale: "false"\n',
  'boot/grub/grub.cfg': [
    'serial --unit=0 --speed=115200',
    'terminal_output serial console',
    'linux /vmlinuz root=LABEL=root ro console=tty0 console=ttyS0,115200',
    'initrd /initrd.img',
    'boot',
    '',
  ].join('\n'),
};

/** What keeps this machine from making the image, in words; null when nothing does. */
export function cloudImageFault() {
  if (process.arch !== 'x64') return `the image is for x86-64, this is ${process.arch}`;
  if (process.getuid?.() !== 0) return 'only root can unpack a system with its owners';
  const missing = Object.entries(programs).filter(([path]) => !existsSync(path));
  return missing.length === 0
    ? null
    : `missing: ${missing.map(([path, name]) => `${path} (apt-get install ${name})`).join(', ')}`;
}

/** The suite of this machine's apt and where it comes from, updates of security included. @throws Error in words */
async function source() {
  const { stdout } = await run('apt-get', [
    ...['indextargets', '--format', '$(REPO_URI) $(CODENAME) $(ORIGIN) $(COMPONENT)'],
    'Created-By: Packages',
  ]);
  const lines = stdout
    .split('\n')
    .map((line) => line.split(' '))
    .filter(([, , origin, component]) => origin === 'Debian' && component === 'main');
  const [uri, suite] = lines.find(([, name]) => /^[a-z]+$/.test(name)) ?? [];
  if (!uri) throw new Error('this machine’s apt has no suite of Debian (apt-get update?)');
  const security = lines.find(([, name]) => name === `${suite}-security`);
  const list = [
    `deb ${uri} ${suite} main`,
    ...(security ? [`deb ${security[0]} ${suite}-security main`] : []),
  ];
  return { suite, list: `${list.join('\n')}\n` };
}

/** Makes the image, in about two minutes and 150 MB of download. @returns its path @throws Error in words */
export async function buildCloudImage(path, say = () => undefined) {
  const fault = cloudImageFault();
  if (fault !== null) throw new Error(fault);
  const { suite, list } = await source();
  const out = resolve(path ?? `debian-${suite}.qcow2`);
  const work = await mkdtemp(join(tmpdir(), 'nebo-image-'));
  try {
    await chmod(work, 0o755);
    const [tree, root, disk] = ['tree', 'root.ext4', 'disk.raw'].map((name) => join(work, name));
    say(`unpacking Debian ${suite}`);
    await writeFile(join(work, 'sources.list'), list);
    await run(
      'mmdebstrap',
      [
        ...['--quiet', '--mode=root', '--variant=minbase', `--include=${packages.join(',')}`],
        ...['doc', 'man', 'locale'].map((name) => `--dpkgopt=path-exclude=/usr/share/${name}/*`),
        ...[suite, tree, join(work, 'sources.list')],
      ],
      { env: environment, timeout: 900_000, maxBuffer: 64 << 20 },
    );
    await settle(tree);
    say('making the disk');
    await writeFile(root, '');
    await run('mke2fs', ['-q', '-F', '-t', 'ext4', '-m', '1', '-L', 'root', '-d', tree, root, rootSize], {
      env: environment,
      timeout: 300_000,
    });
    await makeBootable({ root, disk, work });
    await mkdir(dirname(out), { recursive: true });
    say('packing it');
    await run('qemu-img', ['convert', '-f', 'raw', '-O', 'qcow2', '-c', disk, `${out}.new`], {
      timeout: 600_000,
    });
    await rename(`${out}.new`, out);
    return out;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** Makes the unpacked system nobody's: names, keys and addresses are those of the machine that it becomes. */
async function settle(tree) {
  const enabled = ['systemd-networkd', 'systemd-resolved', 'ssh', 'serial-getty@ttyS0'];
  await run('chroot', [tree, 'systemctl', 'enable', '--quiet', ...enabled], { env: environment });
  for (const name of await readdir(join(tree, 'etc/ssh')))
    if (name.startsWith('ssh_host_')) await rm(join(tree, 'etc/ssh', name));
  await rm(join(tree, 'etc/hostname'), { force: true });
  await rm(join(tree, 'var/lib/dbus/machine-id'), { force: true });
  await rm(join(tree, 'etc/resolv.conf'), { force: true });
  await symlink('../run/systemd/resolve/stub-resolv.conf', join(tree, 'etc/resolv.conf'));
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(tree, path)), { recursive: true });
    await writeFile(join(tree, path), text);
  }
  // A boot loader that names what is not there would only show at the first start.
  for (const name of ['vmlinuz', 'initrd.img']) {
    const there = (await readdir(join(tree, 'boot'))).some((file) => file.startsWith(`${name}-`));
    if (!there || !(await readFile(join(tree, name)).catch(() => null)))
      throw new Error(`the system has no /${name}`);
  }
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const at = process.argv.indexOf('--out');
  try {
    const path = await buildCloudImage(at > 0 ? process.argv[at + 1] : undefined, (text) =>
      console.error(`… ${text}`),
    );
    console.log(`made ${path}`);
    console.log(`offer it: npm run admin -- image add --slug debian --version 1 --file ${path}`);
  } catch (error) {
    console.error(`cloud-image: ${error.stderr?.trim().split('\n').at(-1) || error.message}`);
    process.exit(1);
  }
}
