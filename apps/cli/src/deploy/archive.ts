import { createWriteStream, rmSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { PackManifest } from '@nebo/archive';
import { type Context } from '../core/context.js';
import { size } from '../core/duration.js';
import { CliError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';

/** A folder as an archive on disk: its size and hash are known before the first byte is sent, and it can be sent again. */
export interface PackedFile {
  manifest: PackManifest;
  /** Path of the gzip-compressed tar. */
  path: string;
  sha256: string;
  /** Size of the archive. */
  bytes: number;
  /** Removes it. */
  remove(): Promise<void>;
}

/**
 * Packs a folder into a temporary file (0600, in a folder of its own).
 * @throws CliError when the server would refuse the archive, or a limit is broken: nothing was sent
 */
export async function packToFile(dir: string, gitignore: boolean, signal: AbortSignal): Promise<PackedFile> {
  const { archiveLimits, ArchiveRefused, packFolder } = await import('@nebo/archive');
  const folder = await mkdtemp(join(tmpdir(), 'nebo-deploy-'));
  // A second Ctrl-C ends the process at once; the copy of somebody's source must not stay behind.
  const last = () => rmSync(folder, { recursive: true, force: true });
  process.once('exit', last);
  const remove = async () => {
    process.off('exit', last);
    await rm(folder, { recursive: true, force: true });
  };
  try {
    const { manifest, stream, digest } = await packFolder(dir, { gitignore });
    if (manifest.files === 0)
      throw new CliError(exitCodes.failed, 'nothing_to_deploy', `Nothing is left to deploy in ${dir}`, {
        hint: manifest.ruledBy ? `${manifest.ruledBy} leaves everything out` : 'The folder holds no files',
      });
    const path = join(folder, 'source.tgz');
    await pipeline(stream, createWriteStream(path, { mode: 0o600 }), { signal });
    const { sha256, bytes } = await digest;
    const { compressedBytes } = archiveLimits();
    if (bytes > compressedBytes) {
      throw new CliError(
        exitCodes.failed,
        'compressed_size',
        `The archive is ${size(bytes)}, the limit is ${size(compressedBytes)}`,
        {
          hint: 'Leave files out with .neboignore ("nebo deploy --dry-run" lists what goes in), or deploy from git.',
        },
      );
    }
    return { manifest, path, sha256, bytes, remove };
  } catch (error) {
    await remove();
    signal.throwIfAborted();
    if (error instanceof ArchiveRefused) {
      throw new CliError(exitCodes.failed, error.rule, error.message, {
        hint: '"nebo deploy --dry-run" lists what goes in; .neboignore leaves things out.',
      });
    }
    throw error;
  }
}

/** Says what was packed: which file ruled, count, size, the ten largest, hash. */
export function tellPacked(ctx: Context, packed: PackedFile): void {
  const { manifest, bytes, sha256 } = packed;
  const rules = manifest.ruledBy ? `${manifest.ruledBy} ruled` : 'no ignore file';
  ctx.talk.notice(
    `Packed ${manifest.files} files, ${size(manifest.bytes)} (${size(bytes)} packed), ${rules}; sha256 ${sha256}`,
  );
  ctx.talk.notice(
    `Largest: ${manifest.largest.map((file) => `${file.path} ${size(file.bytes)}`).join(', ')}`,
  );
  for (const { path, why } of manifest.warnings) ctx.talk.warn(`${path} is left out: ${why}`);
}

/** `--dry-run`: everything that would go into the archive, on stdout; nothing is sent. */
export async function printPlan(ctx: Context, packed: PackedFile): Promise<void> {
  const { manifest, bytes, sha256 } = packed;
  const entries = manifest.entries.map(({ path, type, size: length, target }) => ({
    path,
    type,
    bytes: length,
    ...(target === null ? {} : { target }),
  }));
  if (ctx.print.structured) {
    const { ruledBy, files, largest, warnings } = manifest;
    return ctx.print.value({
      ruled_by: ruledBy,
      files,
      bytes: manifest.bytes,
      archive_bytes: bytes,
      sha256,
      largest,
      warnings,
      entries,
    });
  }
  await ctx.print.list(
    entries,
    [{ key: 'path' }, { key: 'bytes' }, { key: 'type', wide: true }, { key: 'target', wide: true }],
    (entry) => entry.path,
  );
}
