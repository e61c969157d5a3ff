/**
 * `npm run tiny-image`: makes the tiny image from Debian packages, which are downloaded and unpacked, never installed. It
 * boots in seconds, also without a processor's help, for tests and for trying things out: a web server, a guest agent, a file
 * on its disk. It has no shell to log in to and is no image for customers.
 *
 *     npm run tiny-image [-- --out FOLDER]     default: images/ in the data folder (NEBO_HOME, .nebo)
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { cpio, vmlinux } from './formats.mjs';
import { guestFiles, only } from './guest.mjs';

const run = promisify(execFile);
const name = 'tiny-1.qcow2';
const root = fileURLToPath(new URL('../../', import.meta.url));
/** Programs that the recipe needs, by the Debian package that has them. */
const programs = {
  '/usr/bin/apt-get': 'apt',
  '/usr/bin/dpkg-deb': 'dpkg',
  '/usr/sbin/mke2fs': 'e2fsprogs',
  '/usr/bin/qemu-img': 'qemu-utils',
};

/** What keeps this machine from making the image, in words; null when nothing does. */
export function tinyImageFault() {
  if (process.arch !== 'x64') return `the image is for x86-64, this is ${process.arch}`;
  const missing = Object.entries(programs).filter(([path]) => !existsSync(path));
  return missing.length === 0
    ? null
    : `missing: ${missing.map(([path, pkg]) => `${path} (${pkg})`).join(', ')}`;
}

/** Hash of the recipe: another one means that an image in a folder is of the past. */
export async function tinyImageRecipe() {
  const hash = createHash('sha256');
  const folder = fileURLToPath(new URL('.', import.meta.url));
  for (const path of (await readdir(folder, { recursive: true })).sort()) {
    const bytes = await readFile(join(folder, path)).catch(() => null);
    if (bytes) hash.update(`${path}\0${bytes.length}\0`).update(bytes);
  }
  return hash.digest('hex').slice(0, 16);
}

/** Whether a folder holds the image by this recipe. */
export async function hasTinyImage(folder) {
  try {
    const note = JSON.parse(await readFile(join(folder, `${name}.json`), 'utf8'));
    return note.recipe === (await tinyImageRecipe());
  } catch {
    return false;
  }
}

/** Makes the image in a folder, in about ten seconds and 30 MB of download. @throws Error in words */
export async function buildTinyImage(folder, say = () => undefined) {
  const fault = tinyImageFault();
  if (fault !== null) throw new Error(fault);
  const work = await mkdtemp(join(tmpdir(), 'nebo-tiny-'));
  try {
    // apt downloads as its own user.
    await chmod(work, 0o777);
    say('downloading Debian packages');
    const kernelPackage = await kernelName();
    const download = () =>
      run('apt-get', ['download', '-q', kernelPackage, 'busybox-static'], { cwd: work, timeout: 300_000 });
    // Lists of yesterday may name files that are gone.
    await download().catch(async () => {
      if (process.getuid?.() === 0) await run('apt-get', ['update', '-q'], { timeout: 180_000 });
      await download();
    });
    for (const deb of (await readdir(work)).filter((each) => each.endsWith('.deb')))
      await run('dpkg-deb', ['-x', join(work, deb), join(work, 'tree')], { timeout: 120_000 });
    const tree = join(work, 'tree');
    const version = (await readdir(join(tree, 'lib/modules')))[0];
    say(`packing ${kernelPackage}`);
    const kernel = vmlinux(await readFile(only(join(tree, 'boot'), /^vmlinuz-/)));
    const busybox = join(tree, 'bin/busybox');
    const files = guestFiles({ busybox, modules: join(tree, 'lib/modules', version, 'kernel') });
    const initrd = gzipSync(cpio(files), { level: 9 });
    await makeDisk(work);
    await mkdir(folder, { recursive: true });
    const put = async (file, bytes) => {
      await writeFile(join(folder, `${file}.new`), bytes);
      await rename(join(folder, `${file}.new`), join(folder, file));
      return { file, sha256: createHash('sha256').update(bytes).digest('hex') };
    };
    const boot = {
      kernel: await put('tiny-1.vmlinux', kernel),
      initrd: await put('tiny-1.initrd.gz', initrd),
      append: 'console=ttyS0 quiet mitigations=off nokaslr',
    };
    const disk = await put(name, await readFile(join(work, name)));
    // Last: without it the image does not count as there.
    const note = { disk, boot, made_of: [kernelPackage, 'busybox-static'], recipe: await tinyImageRecipe() };
    await put(`${name}.json`, `${JSON.stringify(note, null, 2)}\n`);
    return join(folder, name);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** The package that Debian's kernel for clouds is at the moment. */
async function kernelName() {
  const show = () => run('apt-cache', ['depends', 'linux-image-cloud-amd64'], { timeout: 60_000 });
  const find = ({ stdout }) => /Depends: (linux-image-\S+)/.exec(stdout)?.[1];
  const known = find(await show().catch(() => ({ stdout: '' })));
  if (known) return known;
  if (process.getuid?.() === 0) await run('apt-get', ['update', '-q'], { timeout: 180_000 });
  const found = find(await show());
  if (!found) throw new Error('apt knows no linux-image-cloud-amd64');
  return found;
}

/** A disk of 256 MB with an empty file system, packed. */
async function makeDisk(work) {
  const raw = join(work, 'disk.raw');
  await writeFile(raw, '');
  await run('mke2fs', ['-q', '-F', '-t', 'ext4', '-m', '0', '-L', 'tiny', raw, '256M'], {
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
    timeout: 60_000,
  });
  await run('qemu-img', ['convert', '-f', 'raw', '-O', 'qcow2', '-c', raw, join(work, name)], {
    timeout: 120_000,
  });
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const at = process.argv.indexOf('--out');
  const folder = resolve(
    at > 0 ? process.argv[at + 1] : join(root, process.env.NEBO_HOME ?? '.nebo', 'images'),
  );
  try {
    if (await hasTinyImage(folder)) console.log(`${join(folder, name)} is there already`);
    else console.log(`made ${await buildTinyImage(folder, (text) => console.error(`… ${text}`))}`);
  } catch (error) {
    console.error(`tiny-image: ${error.message}`);
    process.exit(1);
  }
}
