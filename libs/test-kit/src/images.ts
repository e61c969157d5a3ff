import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import type { Found } from './parts.js';

/** One entry of a layer, as hostile as one likes: nothing is checked. */
export interface TestEntry {
  path: string;
  /** Default: a file, or a folder when the path ends with a slash. */
  type?: 'file' | 'directory' | 'symlink' | 'hardlink' | 'device' | 'fifo' | 'sparse';
  /** Default 0755 of folders, 0644 of files. */
  mode?: number;
  uid?: number;
  bytes?: Buffer | string;
  /** Of links. */
  target?: string;
  mtime?: number;
}

/** A layer as it lies at a registry. */
export interface TestLayer {
  bytes: Buffer;
  digest: string;
  diffId: string;
  mediaType: string;
}

/** An image as it lies at a registry. */
export interface TestImage {
  manifest: Buffer;
  mediaType: string;
  digest: string;
  config: Buffer;
  layers: TestLayer[];
  architecture: string;
}

export interface TestImageOptions {
  layers: TestLayer[];
  /** `config` of the image's settings: Env, Entrypoint, … */
  config?: Record<string, unknown>;
  architecture?: string;
  os?: string;
  /** Default `oci`. */
  format?: 'oci' | 'docker';
  /** Changes of settings and manifest before they are written, for broken images. */
  spoil?: (settings: Record<string, unknown>, manifest: Record<string, unknown>) => void;
}

export const sha256Digest = (bytes: Buffer): string =>
  `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

const flags = {
  file: '0',
  hardlink: '1',
  symlink: '2',
  device: '3',
  directory: '5',
  fifo: '6',
  sparse: 'S',
} as const;
const block = 512;

function header(entry: TestEntry, flag: string, name: string, size: number): Buffer {
  const head = Buffer.alloc(block);
  const octal = (value: number, at: number, width: number) =>
    head.write(`${value.toString(8).padStart(width - 1, '0')}\0`, at, width, 'latin1');
  head.write(name, 0, 100, 'utf8');
  octal(entry.mode ?? (flag === '5' ? 0o755 : 0o644), 100, 8);
  octal(entry.uid ?? 0, 108, 8);
  octal(entry.uid ?? 0, 116, 8);
  octal(size, 124, 12);
  octal(entry.mtime ?? 1_700_000_000, 136, 12);
  head.write(flag, 156, 1, 'latin1');
  head.write(entry.target ?? '', 157, 100, 'utf8');
  head.write('ustar\x0000', 257, 8, 'latin1');
  head.fill(0x20, 148, 156);
  const sum = head.reduce((total, byte) => total + byte, 0);
  head.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 8, 'latin1');
  return head;
}

const filled = (bytes: Buffer) =>
  Buffer.concat([bytes, Buffer.alloc((block - (bytes.length % block)) % block)]);

/** A tar of entries in their order; long names get a GNU header. */
export function layerTar(entries: readonly TestEntry[]): Buffer {
  const parts: Buffer[] = [];
  for (const entry of entries) {
    const type = entry.type ?? (entry.path.endsWith('/') ? 'directory' : 'file');
    const bytes = type === 'file' ? Buffer.from(entry.bytes ?? '') : Buffer.alloc(0);
    const long = Buffer.from(`${entry.path}\0`);
    if (long.length > 100) parts.push(header({ path: '' }, 'L', '././@LongLink', long.length), filled(long));
    parts.push(header(entry, flags[type], entry.path, bytes.length), filled(bytes));
  }
  return Buffer.concat([...parts, Buffer.alloc(2 * block)]);
}

const packings = { gzip: 'tar+gzip', zstd: 'tar+zstd', none: 'tar' } as const;

/** A layer of entries. */
export function testLayer(
  entries: readonly TestEntry[] | Buffer,
  packing: keyof typeof packings = 'gzip',
): TestLayer {
  const tar = Buffer.isBuffer(entries) ? entries : layerTar(entries as readonly TestEntry[]);
  const bytes = packing === 'gzip' ? gzipSync(tar) : packing === 'zstd' ? zstdCompressSync(tar) : tar;
  const mediaType = `application/vnd.oci.image.layer.v1.${packings[packing]}`;
  return { bytes, digest: sha256Digest(bytes), diffId: sha256Digest(tar), mediaType };
}

const formats = {
  oci: {
    manifest: 'application/vnd.oci.image.manifest.v1+json',
    config: 'application/vnd.oci.image.config.v1+json',
  },
  docker: {
    manifest: 'application/vnd.docker.distribution.manifest.v2+json',
    config: 'application/vnd.docker.container.image.v1+json',
  },
} as const;

/** The processor of this host as images name it. */
export const hostArchitecture: string =
  { x64: 'amd64', arm64: 'arm64' }[process.arch as string] ?? process.arch;

/** Puts an image together. */
export function testImage(options: TestImageOptions): TestImage {
  const {
    layers,
    config = {},
    architecture = hostArchitecture,
    os = 'linux',
    format = 'oci',
    spoil,
  } = options;
  const types = formats[format];
  const settings: Record<string, unknown> = {
    ...{ architecture, os, config },
    rootfs: { type: 'layers', diff_ids: layers.map(({ diffId }) => diffId) },
  };
  const gzipType = 'application/vnd.docker.image.rootfs.diff.tar.gzip';
  const manifest: Record<string, unknown> = {
    schemaVersion: 2,
    mediaType: types.manifest,
    layers: layers.map(({ bytes, digest, mediaType }) => ({
      ...{ digest, size: bytes.length },
      mediaType: format === 'docker' ? gzipType : mediaType,
    })),
  };
  spoil?.(settings, manifest);
  const written = Buffer.from(JSON.stringify(settings));
  manifest['config'] ??= { mediaType: types.config, digest: sha256Digest(written), size: written.length };
  const bytes = Buffer.from(JSON.stringify(manifest));
  return {
    ...{ manifest: bytes, mediaType: types.manifest, digest: sha256Digest(bytes), config: written, layers },
    architecture,
  };
}

/** The program of the package busybox-static, which runs in any image. */
export async function findBusybox(): Promise<Found<Buffer>> {
  for (const path of ['/bin/busybox', '/usr/bin/busybox']) {
    const bytes = await readFile(path).catch(() => null);
    // A program with an interpreter needs the host's libraries.
    if (bytes !== null && !bytes.includes('/lib64/ld-linux') && !bytes.includes('/lib/ld-'))
      return { found: bytes, reason: null };
  }
  return { found: null, reason: 'there is no static busybox (apt-get install busybox-static)' };
}

/** An image without a shell that serves one page at port 80: one static program, one text. */
export function pageImage(busybox: Buffer, page: string, more: Partial<TestImageOptions> = {}): TestImage {
  const program = testLayer([{ path: 'bin/' }, { path: 'bin/busybox', mode: 0o755, bytes: busybox }]);
  const text = testLayer([{ path: 'www/' }, { path: 'www/index.html', bytes: page }]);
  return testImage({
    layers: [program, text],
    config: {
      Entrypoint: ['/bin/busybox', 'httpd', '-f', '-h', '/www'],
      Cmd: ['-p', '80'],
      ExposedPorts: { '80/tcp': {} },
    },
    ...more,
  });
}
