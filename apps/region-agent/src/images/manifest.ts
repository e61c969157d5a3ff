import { ImageFailure, told } from './image-failure.js';

/** A blob that a manifest names. */
export interface Descriptor {
  mediaType: string;
  /** `sha256:` and 64 hex digits. */
  digest: string;
  size: number;
}

/** An image for one platform. */
export interface ImageManifest {
  kind: 'image';
  config: Descriptor;
  layers: Descriptor[];
}

/** One image for several platforms. */
export interface ImageIndex {
  kind: 'index';
  manifests: (Descriptor & { os: string; architecture: string; variant: string })[];
}

/** Media types that are asked for, as `Accept`. */
export const manifestTypes = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
].join(', ');

/** Most bytes of a manifest or of an image's settings. */
export const maxDocumentBytes = 4 * 1024 * 1024;
export const maxLayers = 256;

/** Layers that are tars; how they are compressed their first bytes say. */
const layerType =
  /^application\/vnd\.(docker\.image\.rootfs\.(foreign\.)?diff\.tar|oci\.image\.layer\.(nondistributable\.)?v1\.tar)([.+](gzip|zstd))?$/;
const configType = /^application\/vnd\.(docker\.container\.image|oci\.image\.config)\.v1\+json$/;
const digestForm = /^sha256:[0-9a-f]{64}$/;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** @throws ImageFailure when the bytes are no JSON object */
export function readObject(bytes: Buffer, what: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'));
    if (isObject(value)) return value;
  } catch {
    // Said below.
  }
  throw new ImageFailure(`The registry's ${what} cannot be read: it is no JSON object.`);
}

/** Reads a manifest or an index. @throws ImageFailure for what is neither, or no image that can run */
export function readManifest(bytes: Buffer): ImageManifest | ImageIndex {
  const manifest = readObject(bytes, 'manifest');
  if (manifest['schemaVersion'] === 1)
    throw new ImageFailure(
      'The image is in a format of before 2016 (schema 1). Push it again with a current tool.',
    );
  if (Array.isArray(manifest['manifests'])) {
    const entries = manifest['manifests'].slice(0, 1_000) as unknown[];
    return { kind: 'index', manifests: entries.map(platformOf) };
  }
  if (!Array.isArray(manifest['layers']) || !isObject(manifest['config']))
    throw new ImageFailure("The registry's manifest is of a kind that is not known here.");
  const config = descriptorOf(manifest['config']);
  const layers = (manifest['layers'] as unknown[]).map(descriptorOf);
  if (layers.length > maxLayers) throw new ImageFailure(`The image has more than ${maxLayers} layers.`);
  const odd = configType.test(config.mediaType)
    ? layers.find(({ mediaType }) => !layerType.test(mediaType))?.mediaType
    : config.mediaType;
  if (odd !== undefined)
    throw new ImageFailure(`This is no image that can run: it holds something of the type "${told(odd)}".`);
  return { kind: 'image', config, layers };
}

function descriptorOf(value: unknown): Descriptor {
  const { mediaType, digest, size } = isObject(value) ? value : {};
  if (typeof digest !== 'string' || !digestForm.test(digest))
    throw new ImageFailure("The registry's manifest names something without a SHA-256 digest.");
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0)
    throw new ImageFailure("The registry's manifest names something without a size.");
  return { mediaType: typeof mediaType === 'string' ? mediaType : '', digest, size };
}

function platformOf(value: unknown): ImageIndex['manifests'][number] {
  const platform = isObject(value) && isObject(value['platform']) ? value['platform'] : {};
  const text = (name: string) => (typeof platform[name] === 'string' ? platform[name] : '');
  return {
    ...descriptorOf(value),
    os: text('os'),
    architecture: text('architecture'),
    variant: text('variant'),
  };
}

/** The words for processors that manifests use. */
const architectures: Readonly<Record<string, string>> = {
  x64: 'amd64',
  arm64: 'arm64',
  arm: 'arm',
  ia32: '386',
};

/** @param arch as Node says it */
export const architectureOf = (arch: string): string => architectures[arch] ?? arch;

/**
 * Which image of an index runs here.
 * @param architecture as manifests say it
 * @throws ImageFailure naming what there is instead
 */
export function chooseManifest({ manifests }: ImageIndex, architecture: string): Descriptor {
  const fits = manifests.filter((each) => each.os === 'linux' && each.architecture === architecture);
  const plain = fits.find(({ variant }) => variant === '' || variant === 'v8' || variant === 'v1');
  const found = plain ?? fits[0];
  if (found) return found;
  const there = manifests
    // Notes about how an image was made stand in an index as images of no platform.
    .filter(({ os }) => os !== '' && os !== 'unknown')
    .map((each) => told(`${each.os}/${each.architecture}`));
  throw new ImageFailure(
    `The image has nothing for linux/${architecture}, which this region runs` +
      (there.length > 0 ? `; it has ${[...new Set(there)].slice(0, 20).join(', ')}.` : '.'),
  );
}

/** What an image says of how it is run. */
export interface ImageSettings {
  /** User name or number, with a group behind a colon perhaps; empty: root. */
  user: string;
  /** `NAME=value`. */
  env: string[];
  entrypoint: string[];
  cmd: string[];
  working_dir: string;
  /** TCP ports that it exposes, in its order. */
  ports: number[];
}

/**
 * Reads an image's settings.
 * @throws ImageFailure when they cannot be read, or the image is for another platform
 */
export function readSettings(
  bytes: Buffer,
  architecture: string,
): { settings: ImageSettings; diffIds: string[] } {
  const config = readObject(bytes, 'image settings');
  const { os, architecture: built, rootfs, config: run } = config;
  if ((os ?? 'linux') !== 'linux' || (built ?? architecture) !== architecture)
    throw new ImageFailure(
      `The image is for ${told(`${String(os ?? 'linux')}/${String(built ?? 'unknown')}`)}, and this region runs linux/${architecture}.`,
    );
  const diffIds =
    isObject(rootfs) && Array.isArray(rootfs['diff_ids']) ? (rootfs['diff_ids'] as unknown[]) : [];
  if (!diffIds.every((id): id is string => typeof id === 'string' && digestForm.test(id)))
    throw new ImageFailure('The image settings name layers without SHA-256 digests.');
  const said = isObject(run) ? run : {};
  const text = (name: string) => (typeof said[name] === 'string' ? said[name] : '');
  const settings: ImageSettings = {
    user: text('User'),
    env: words(said['Env'], 'Env'),
    entrypoint: words(said['Entrypoint'], 'Entrypoint'),
    cmd: words(said['Cmd'], 'Cmd'),
    working_dir: text('WorkingDir'),
    ports: isObject(said['ExposedPorts']) ? portsOf(Object.keys(said['ExposedPorts'])) : [],
  };
  if (
    Object.values(settings)
      .flat()
      .some((value) => typeof value === 'string' && value.includes('\0'))
  )
    throw new ImageFailure('The image settings hold a NUL.');
  return { settings, diffIds };
}

function words(value: unknown, name: string): string[] {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value) && value.length <= 10_000 && value.every((each) => typeof each === 'string'))
    return value;
  throw new ImageFailure(`The image settings cannot be read: ${name} is no list of words.`);
}

/** `80/tcp` and `80`; other protocols are passed over. */
function portsOf(names: readonly string[]): number[] {
  const ports = names.map((name) => /^(\d{1,5})(\/tcp)?$/.exec(name)?.[1]).map(Number);
  return [...new Set(ports.filter((port) => port > 0 && port < 65_536))];
}
