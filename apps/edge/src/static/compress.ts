import { mkdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { type Encoding } from './content.js';
import { type EncodedFile, type Site } from './site.js';

const brotli = promisify(brotliCompress);
const deflate = promisify(gzip);

/** Brotli's highest levels cost seconds per megabyte; above this size a middle one is used. */
const LARGE_BYTES = 512 * 1024;

/**
 * Makes the compressed forms of a site's files that lack them, one file at a time, named by content. Each form is used
 * from the moment it is complete. A form that saves less than a twentieth is not kept.
 */
export async function compressSite(site: Site, folder: string, signal: AbortSignal): Promise<void> {
  await mkdir(folder, { recursive: true });
  const done = new Map<string, SiteEncodings>();
  for (const file of site.files.values()) {
    if (!file.compressible) continue;
    const same = done.get(file.hash);
    if (same) {
      file.encodings = same;
      continue;
    }
    if (signal.aborted) return;
    const encodings: SiteEncodings = { ...file.encodings };
    let content: Buffer | undefined;
    for (const coding of ['br', 'gzip'] as const) {
      if (encodings[coding]) continue;
      const target = join(folder, `${file.hash}.${coding}`);
      const size = await sizeOf(target);
      if (size !== null) {
        if (size > 0) encodings[coding] = { file: target, size };
        continue;
      }
      content ??= await readFile(file.file);
      const packed = coding === 'br' ? await toBrotli(content) : await deflate(content, { level: 8 });
      const worth = packed.length < content.length * 0.95;
      // An empty file remembers that this form was tried and is not worth keeping.
      await writeFile(`${target}.part`, worth ? packed : '');
      await rename(`${target}.part`, target);
      if (worth) encodings[coding] = { file: target, size: packed.length };
    }
    file.encodings = encodings;
    done.set(file.hash, encodings);
  }
}

type SiteEncodings = Partial<Record<Encoding, EncodedFile>>;

function toBrotli(content: Buffer): Promise<Buffer> {
  return brotli(content, {
    params: {
      [constants.BROTLI_PARAM_QUALITY]: content.length > LARGE_BYTES ? 6 : 9,
      [constants.BROTLI_PARAM_SIZE_HINT]: content.length,
    },
  });
}

async function sizeOf(path: string): Promise<number | null> {
  try {
    return (await stat(path)).size;
  } catch {
    return null;
  }
}
