import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { join, posix } from 'node:path';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { LayerRefused, readLayer } from '@nebo/archive';
import { type BlobAccess } from '../drivers/types.js';
import { type ImageDocument, type ImageLayer, writeDocument } from '../images/image-document.js';
import { ImageFailure, told } from '../images/image-failure.js';
import { type ImageLimits } from '../images/image-limits.js';
import { megabytes, type PulledImage } from '../images/image-pull.js';
import { localBlobs } from '../images/local-blobs.js';
import { maxDocumentBytes, maxLayers, readSettings } from '../images/manifest.js';

export interface ArchiveParts {
  blobs: BlobAccess;
  limits: ImageLimits;
  /** Folder for what is on its way; the caller removes it. */
  dir: string;
  /** The processor of this host, as manifests say it. */
  architecture: string;
  signal: AbortSignal;
  say(line: string): void;
}

/** A file of the archive on this host. */
interface Member {
  path: string;
  bytes: number;
}

/** Entries of an archive: layers, a settings file, some words of old engines with every layer. */
const maxMembers = 4 * maxLayers + 64;

/**
 * Takes an image as engines export it (`manifest.json` and layers; OCI layouts have that file too), checks it, and stores its layers
 * compressed. Nothing of it is unpacked here.
 * @throws ImageFailure with a sentence for the user; the signal's reason
 */
export async function storeImageArchive(
  source: AsyncIterable<Buffer>,
  parts: ArchiveParts,
): Promise<PulledImage> {
  const members = await spread(source, parts);
  const { Config: config, Layers: names } = manifestIn(await contents(member(members, 'manifest.json')));
  if (typeof config !== 'string' || !Array.isArray(names) || names.length > maxLayers)
    throw new ImageFailure('The engine exported an image that cannot be read: its manifest is unknown.');
  const bytes = await contents(member(members, config));
  const { settings, diffIds } = readSettings(bytes, parts.architecture);
  if (diffIds.length !== names.length)
    throw new ImageFailure(`The image names ${names.length} layers, and its settings ${diffIds.length}.`);
  const layers: ImageLayer[] = [];
  const files = new Map<string, string>();
  let total = 0;
  for (const [index, name] of names.entries()) {
    const path = join(parts.dir, `layer-${index}.gz`);
    const blob = await compressed(member(members, String(name)), path, parts.signal);
    total += blob.bytes;
    if (total > parts.limits.compressedBytes)
      throw new ImageFailure(
        `The image has more than ${megabytes(parts.limits.compressedBytes)} compressed, the most that an image may have.`,
      );
    layers.push({ ...blob, diff_id: diffIds[index]! });
    if (!files.has(blob.sha256)) {
      await parts.blobs.put(blob, () => createReadStream(path), parts.signal);
      files.set(blob.sha256, path);
    }
    parts.say(
      `layer ${index + 1} of ${names.length}: ${blob.sha256.slice(0, 12)}, ${megabytes(blob.bytes)} compressed`,
    );
  }
  // Such an image has no name anywhere: it is called by its settings, as engines do.
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  const document: ImageDocument = { version: 1, digest, manifest: digest, settings, layers };
  const written = writeDocument(document);
  await parts.blobs.put(written.blob, () => Readable.from([written.bytes]), parts.signal);
  return {
    document,
    artifact: written.blob,
    local: localBlobs(parts.blobs, { sha256: written.blob.sha256, bytes: written.bytes }, (sha256) =>
      files.get(sha256),
    ),
  };
}

/** Writes the archive's files into the folder, under numbers. Links lead to other names of the archive. */
async function spread(source: AsyncIterable<Buffer>, parts: ArchiveParts): Promise<Map<string, Member>> {
  const { limits, dir, signal } = parts;
  const members = new Map<string, Member>();
  const links = new Map<string, string>();
  let left = limits.expandedBytes + maxMembers * 1024;
  let entries = 0;
  try {
    for await (const entry of readLayer(source)) {
      signal.throwIfAborted();
      if ((entries += 1) > maxMembers)
        throw new ImageFailure('The engine exported an image of too many parts.');
      const name = entry.segments.join('/');
      if (entry.type === 'symlink') links.set(name, posix.join(posix.dirname(name), entry.target));
      if (entry.type === 'hardlink') links.set(name, posix.normalize(entry.target));
      if (entry.type !== 'file') continue;
      const path = join(dir, `member-${entries}`);
      let bytes = 0;
      const count = new Transform({
        transform(chunk: Buffer, _encoding, done) {
          bytes += chunk.length;
          left -= chunk.length;
          if (left >= 0) return done(null, chunk);
          done(
            new ImageFailure(
              `The image has more than ${megabytes(limits.expandedBytes)}, the most it may have.`,
            ),
          );
        },
      });
      await pipeline(entry.body, count, createWriteStream(path, { mode: 0o600 }), { signal });
      members.set(name, { path, bytes });
    }
  } catch (error) {
    if (error instanceof LayerRefused)
      throw new ImageFailure(`The engine exported an image that cannot be read: ${error.message}`);
    throw error;
  }
  for (const [name, target] of links) {
    const found = members.get(target);
    if (found && !members.has(name)) members.set(name, found);
  }
  return members;
}

function member(members: ReadonlyMap<string, Member>, name: string): Member {
  const found = members.get(posix.normalize(name));
  if (!found) throw new ImageFailure(`The engine exported an image without its part "${told(name)}".`);
  return found;
}

async function contents({ path, bytes }: Member): Promise<Buffer> {
  if (bytes > maxDocumentBytes) throw new ImageFailure('The settings of the image are too large.');
  const parts: Buffer[] = [];
  for await (const part of createReadStream(path) as AsyncIterable<Buffer>) parts.push(part);
  return Buffer.concat(parts);
}

/** The only image of the archive. */
function manifestIn(bytes: Buffer): { Config?: unknown; Layers?: unknown } {
  try {
    const list: unknown = JSON.parse(bytes.toString('utf8'));
    const first: unknown = Array.isArray(list) ? list[0] : null;
    if (typeof first === 'object' && first !== null) return first;
  } catch {
    // Said by the caller.
  }
  return {};
}

/** A layer as it will be stored. Equal layers give equal bytes, so that the next build's are there already. */
async function compressed(
  { path }: Member,
  to: string,
  signal: AbortSignal,
): Promise<{ sha256: string; bytes: number }> {
  const hash = createHash('sha256');
  let bytes = 0;
  const count = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk);
      bytes += chunk.length;
      done(null, chunk);
    },
  });
  const steps = (await isPacked(path))
    ? [createReadStream(path), count]
    : // Unpacked soon, and by us: time counts more than size.
      [createReadStream(path), createGzip({ level: 1 }), count];
  await pipeline([...steps, createWriteStream(to, { mode: 0o600 })], { signal });
  return { sha256: hash.digest('hex'), bytes };
}

/** gzip or zstd, as some engines keep layers. */
async function isPacked(path: string): Promise<boolean> {
  for await (const chunk of createReadStream(path, { end: 3 }) as AsyncIterable<Buffer>)
    return chunk.readUInt16BE(0) === 0x1f8b || chunk.equals(Buffer.from([0x28, 0xb5, 0x2f, 0xfd]));
  return false;
}
