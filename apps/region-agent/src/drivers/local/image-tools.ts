import { cp, mkdir, realpath, rename, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { tool } from './exec.js';

/** Where the host's shell stands inside an image. */
const inside = '/.nebo/lib';

/** A shell of the host that runs inside any image: with its own loader and libraries, so that the image needs none. */
export interface ImageTools {
  /** The folder that is laid over the image. */
  layer: string;
  /** How the shell is started inside. */
  shell: string[];
}

/**
 * Copies the shell, its loader and its libraries into a folder, once for each agent.
 * @param dir a folder of this agent alone; made anew
 */
export async function makeImageTools(dir: string): Promise<ImageTools> {
  const shell = await realpath('/bin/sh');
  // A shell without libraries makes ldd fail.
  const said = await tool(['ldd', shell]).catch(() => '');
  const libraries = [...said.matchAll(/^\s*\S+ => (\/\S+)/gm)].map(([, path]) => path!);
  const loader = /^\s*(\/\S+) \(/m.exec(said)?.[1] ?? null;
  const lib = join(`${dir}.new`, inside);
  await rm(`${dir}.new`, { recursive: true, force: true });
  await mkdir(lib, { recursive: true, mode: 0o755 });
  // What a path leads to, under the name by which it is asked for.
  const bring = async (path: string, name: string) => cp(await realpath(path), join(lib, name));
  await bring(shell, 'sh');
  if (loader !== null) await bring(loader, 'ld.so');
  for (const path of libraries) await bring(path, basename(path));
  await rm(dir, { recursive: true, force: true });
  await rename(`${dir}.new`, dir);
  const start = loader === null ? [] : [`${inside}/ld.so`, '--library-path', inside];
  return { layer: dir, shell: [...start, `${inside}/sh`] };
}

/** Constant: whether a file system can be laid over another one in a memory of its own. */
const tryOverlay =
  'mount -t tmpfs nebo "$1" && cd "$1" && mkdir a b c d && mount -t overlay -o lowerdir=a,upperdir=b,workdir=c nebo d';

/** Why no image can run here, as the end of a sentence; null: it can. @param dir an empty folder of this agent */
export async function imagesFault(dir: string): Promise<string | null> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  try {
    await tool(['unshare', '--mount', '--propagation', 'private', 'sh', '-c', tryOverlay, 'nebo-probe', dir]);
    await tool(['chroot', '--userspec=+65534:+65534', '--groups=', '/', 'true']);
    return null;
  } catch (error) {
    return `its host cannot lay one file system over another (overlayfs): ${(error as Error).message}`;
  }
}
