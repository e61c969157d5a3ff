import { constants } from 'node:fs';
import { lstat, open } from 'node:fs/promises';
import { join } from 'node:path';
import { RootTree } from '@nebo/archive';

const maxText = 1024 * 1024;

/** An unpacked image as the agent, which is root, looks into it: links lead nowhere but inside. */
export class ImageRoot {
  private readonly tree: RootTree;

  constructor(readonly path: string) {
    this.tree = new RootTree(path, { entries: 0 }, null);
  }

  /** What a path of the image is; null: it is not there. Permissions are those of the last part. */
  async kind(path: string): Promise<{ kind: 'file' | 'folder' | 'other'; mode: number } | null> {
    const found = await this.tree.find(path);
    if (!found) return null;
    const { info } = found;
    return {
      kind: info.isFile() ? 'file' : info.isDirectory() ? 'folder' : 'other',
      mode: info.mode & 0o7777,
    };
  }

  /** What stands under a name in the root folder itself, a link not followed. */
  async own(name: string): Promise<{ isDirectory: boolean; mode: number } | null> {
    const info = await lstat(join(this.path, name)).catch(() => null);
    return info && { isDirectory: info.isDirectory(), mode: info.mode & 0o7777 };
  }

  /** A small text; empty when it is not there or is none. */
  async text(path: string): Promise<string> {
    const found = await this.tree.find(path);
    if (!found?.info.isFile() || found.info.size > maxText) return '';
    const file = await open(found.path, constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      return await file.readFile('utf8');
    } finally {
      await file.close();
    }
  }
}
