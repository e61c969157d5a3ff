/** What goes into the first file system of the tiny image: busybox, modules in their order, and the scripts of guest/. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const scripts = fileURLToPath(new URL('guest/', import.meta.url));

/** Modules that the guest needs: PCI, disk, network, guest agent, the seed's file system, the power button. */
const wanted = [
  ...['virtio_pci', 'virtio_blk', 'virtio_net', 'virtio_console'],
  ...['vfat', 'nls_cp437', 'nls_ascii', 'nls_utf8', 'button', 'evdev'],
];

/** Modules by name with their bytes. @param {string} folder a kernel's `lib/modules/<version>/kernel` */
function findModules(folder) {
  const found = new Map();
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true }))
    if (entry.isFile() && entry.name.endsWith('.ko'))
      found.set(entry.name.slice(0, -3).replaceAll('-', '_'), join(entry.parentPath, entry.name));
  return found;
}

/**
 * Names of modules in the order in which they can be loaded. Each says itself what it needs (`depends=` in its .modinfo).
 * @returns {{ name: string, bytes: Buffer }[]}
 */
export function moduleOrder(folder, names = wanted) {
  const paths = findModules(folder);
  const order = new Map();
  const add = (name) => {
    if (order.has(name)) return;
    const path = paths.get(name);
    // Built into the kernel, then; a kernel without it says so when it boots.
    if (!path) return;
    const bytes = readFileSync(path);
    const [, depends = ''] = /\0depends=([^\0]*)\0/.exec(bytes.toString('latin1')) ?? [];
    for (const needed of depends.split(',').filter(Boolean)) add(needed.replaceAll('-', '_'));
    order.set(name, { name, bytes });
  };
  for (const name of names) add(name);
  return [...order.values()];
}

/** Entries for `cpio`. @param {{ busybox: string, modules: string }} from */
export function guestFiles({ busybox, modules }) {
  const script = (name) => readFileSync(join(scripts, name));
  const loaded = moduleOrder(modules);
  const folders = [
    'bin',
    'dev',
    'proc',
    'sys',
    'etc',
    'etc/acpi',
    'etc/acpi/PWRF',
    'modules',
    'www',
    'www/cgi-bin',
  ];
  return [
    ...folders.map((path) => ({ path, mode: 0o040755, bytes: Buffer.alloc(0) })),
    { path: 'bin/busybox', mode: 0o100755, bytes: readFileSync(busybox) },
    { path: 'bin/sh', mode: 0o120777, bytes: Buffer.from('busybox') },
    { path: 'init', mode: 0o100755, bytes: script('init') },
    ...['udhcpc', 'shutdown', 'guest-agent'].map((name) => ({
      path: `etc/${name}`,
      mode: 0o100755,
      bytes: script(name),
    })),
    { path: 'etc/acpi/PWRF/00000080', mode: 0o100755, bytes: script('shutdown') },
    ...['state', 'content'].map((name) => ({
      path: `www/cgi-bin/${name}`,
      mode: 0o100755,
      bytes: script(name),
    })),
    {
      path: 'modules/order',
      mode: 0o100644,
      bytes: Buffer.from(`${loaded.map(({ name }) => name).join('\n')}\n`),
    },
    ...loaded.map(({ name, bytes }) => ({ path: `modules/${name}.ko`, mode: 0o100644, bytes })),
  ];
}

/** The one file of a folder whose name fits. @throws Error when there is none */
export function only(folder, pattern) {
  const name = existsSync(folder) && readdirSync(folder).find((each) => pattern.test(basename(each)));
  if (!name) throw new Error(`no ${pattern} in ${folder}`);
  return join(folder, name);
}
