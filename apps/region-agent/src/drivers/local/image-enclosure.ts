import { chmod, chown, copyFile, mkdir, symlink, writeFile } from 'node:fs/promises';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type EnvEntry, type ReplicaSpec } from '@nebo/contracts';
import { readDocument } from '../../images/image-document.js';
import { argvOf, envOf, groupFor, passwdFor, portOf, userOf } from '../../images/image-plan.js';
import { ImageRoot } from '../../images/image-root.js';
import { imageGid, unpackedImage } from '../../images/unpack-image.js';
import { type Run } from '../../system/runs.js';
import { type Toolchain } from '../../system/toolchain.js';
import { type SandboxProcess } from '../sandbox.js';
import { type EnclosedProcess, envFile, isolation, spawnEnclosed, systemFolders } from './bwrap.js';
import { type ImageTools } from './image-tools.js';

/** What an image's process may see and use. */
export interface ImageEnclosure extends EnclosedProcess {
  run: Run;
  toolchain: Toolchain;
  tools: ImageTools;
  uid: number;
  /** The unpacked image. */
  folder: string;
  spec: Pick<ReplicaSpec, 'start_command' | 'env'>;
  /** Variables of the host: the way out. */
  region: readonly EnvEntry[];
}

const authoritiesInside = '/.nebo/authorities.pem';

/**
 * Constant: makes the image's root in a mount namespace of its own, so that nothing of it is left when its processes are gone.
 * What the app writes is in memory, of a bounded size, and counts as the app's.
 */
const mountImage = [
  'cd "$1" || exit 126',
  'echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start',
  'mount -t tmpfs -o "size=$2,nr_inodes=200000,mode=0755,nosuid,nodev" nebo rw || exit 126',
  'mkdir -m 0775 rw/upper && mkdir -m 0700 rw/work && chgrp "$3" rw/upper || exit 126',
  'mount -t overlay -o lowerdir=own:tools:lower,upperdir=rw/upper,workdir=rw/work,nosuid,nodev nebo root || exit 126',
  'cd / && shift 3 && exec "$@"',
].join('\n');

/** Constant: reads the variables (only now, as the unprivileged user) and becomes the image's command. */
const enterImage = '. /.nebo/env && unset OLDPWD && cd -- "$1" && shift && exec "$@"';

/** Starts an image's process in a sandbox whose root is the image. */
export async function startImage(of: ImageEnclosure): Promise<{ child: SandboxProcess; port: number }> {
  const { run, uid, spec, folder, tools, toolchain, limits } = of;
  const { settings } = readDocument(await readFile(join(folder, unpackedImage.document)));
  const root = new ImageRoot(join(folder, unpackedImage.root));
  const { port } = portOf(settings, spec.env);
  const passwd = await root.text('/etc/passwd');
  const user = userOf(settings, passwd);
  const region = toolchain.authorities
    ? [...of.region, { name: 'NODE_EXTRA_CA_CERTS', value: authoritiesInside, secret: false }]
    : of.region;
  const env = envOf(settings, user, region, spec.env, port);
  const shell = (await root.kind('/bin/sh'))?.kind === 'file' ? ['/bin/sh'] : tools.shell;
  await ownLayer(of, root, {
    '/.nebo/env': { text: envFile(env), mode: 0o400, uid },
    '/etc/passwd': { text: passwdFor(user, passwd, uid, imageGid) },
    '/etc/group': { text: groupFor(await root.text('/etc/group'), imageGid) },
    '/etc/hosts': { text: '127.0.0.1 localhost nebo\n::1 localhost ip6-localhost\n' },
  });
  if (toolchain.authorities) await copyFile(toolchain.authorities, join(run.dir, 'own', authoritiesInside));
  await symlink(tools.layer, join(run.dir, 'tools'));
  await symlink(root.path, join(run.dir, 'lower'));
  for (const name of ['rw', 'root']) await mkdir(join(run.dir, name), { mode: 0o755 });
  const around = [
    ...['unshare', '--mount', '--propagation', 'private', 'sh', '-c', mountImage, 'nebo-image'],
    ...[run.dir, String(limits.tmpBytes), String(imageGid)],
  ];
  const inner = [
    ...['setpriv', '--no-new-privs', '--bounding-set=-all,+setuid,+setgid,+sys_chroot'],
    ...['--inh-caps=-all', '--ambient-caps=-all'],
    // Numbers with a plus: no name is looked up, in no file of the image.
    ...['/usr/sbin/chroot', `--userspec=+${uid}:+${imageGid}`, '--groups=', '/image'],
    ...[...tools.shell, '-c', enterImage, 'sh', settings.working_dir || '/'],
    ...argvOf(settings, spec.start_command, shell),
  ];
  return { child: await spawnEnclosed(of, imageArgs(of), inner, around), port };
}

/**
 * bubblewrap's arguments: outside the image's root there is a small host, whose tools change root and user and then become the
 * image's command. No path that an image could have made a link is ever mounted on: `own` shadows them.
 */
function imageArgs({ run, limits }: ImageEnclosure): string[] {
  const root = '/image';
  const args = [...isolation(), ...systemFolders()];
  args.push('--perms', '0755', '--dir', root, '--bind', join(run.dir, 'root'), root);
  args.push('--proc', `${root}/proc`, '--dev', `${root}/dev`);
  args.push('--size', String(limits.tmpBytes), '--perms', '1777', '--tmpfs', `${root}/dev/shm`);
  args.push('--remount-ro', '/', '--chdir', '/', '--cap-drop', 'ALL');
  for (const needed of ['CAP_SETUID', 'CAP_SETGID', 'CAP_SETPCAP', 'CAP_SYS_CHROOT'])
    args.push('--cap-add', needed);
  return args;
}

/** What lies over the image: folders to mount on, and files that say who the process is. */
async function ownLayer(
  { run }: ImageEnclosure,
  root: ImageRoot,
  files: Record<string, { text: string; mode?: number; uid?: number }>,
): Promise<void> {
  const own = join(run.dir, 'own');
  const folder = async (path: string, mode: number, gid = 0) => {
    const full = join(own, path);
    await mkdir(full);
    await chmod(full, mode);
    await chown(full, 0, gid);
  };
  await mkdir(own, { mode: 0o755 });
  for (const path of ['/dev', '/proc', '/.nebo']) await folder(path, 0o755);
  if ((await root.kind('/tmp')) === null) await folder('/tmp', 0o1777);
  // An /etc that is a link stays one: the image's own files are better than none.
  const etc = await root.own('etc');
  if (etc === null || etc.isDirectory) await folder('/etc', etc?.mode ?? 0o755, imageGid);
  for (const [path, { text, mode = 0o644, uid = 0 }] of Object.entries(files)) {
    if (path.startsWith('/etc/') && etc !== null && !etc.isDirectory) continue;
    const full = join(own, path);
    await writeFile(full, text, { mode: 0o600 });
    await chown(full, uid, imageGid);
    await chmod(full, mode);
  }
}
