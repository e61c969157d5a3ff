import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Trash } from '../src/system/trash.js';
import { testLog } from './agent-kit.js';

describe('trash', () => {
  let home: string;
  beforeEach(async () => void (home = await mkdtemp(join(tmpdir(), 'nebo-trash-'))));
  afterEach(() => rm(home, { recursive: true, force: true }));

  const full = async (name: string, files = 50) => {
    const dir = join(home, name);
    await mkdir(join(dir, 'a/b'), { recursive: true });
    for (let i = 0; i < files; i++) await writeFile(join(dir, 'a/b', String(i)), 'x');
    return dir;
  };

  it('is out of the way at once and removed beside everything else', async () => {
    const trash = new Trash(join(home, 'trash'), testLog);
    await trash.start();
    for (const name of ['one', 'two', 'three']) await trash.take(await full(name));
    expect(await readdir(home)).toEqual(['trash']);
    await trash.emptied();
    expect(await readdir(join(home, 'trash'))).toEqual([]);
  });

  it('takes what is not there, and the same name again', async () => {
    const trash = new Trash(join(home, 'trash'), testLog);
    await trash.take(join(home, 'nothing'));
    for (let i = 0; i < 2; i++) await trash.take(await full('again', 3));
    await trash.emptied();
    expect(await readdir(join(home, 'trash'))).toEqual([]);
  });

  it('removes what it cannot take to its place at once: another file system, where this machine has one', async () => {
    const elsewhere = await mkdtemp(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'nebo-trash-'));
    await mkdir(join(elsewhere, 'deep'));
    await writeFile(join(elsewhere, 'deep/file'), 'x');
    const trash = new Trash(join(home, 'trash'), testLog);
    await trash.take(elsewhere);
    await trash.emptied();
    expect(existsSync(elsewhere)).toBe(false);
  });

  it('has whoever throws away too much wait', async () => {
    const trash = new Trash(join(home, 'trash'), testLog);
    for (let i = 0; i < 30; i++) {
      await trash.take(await full(`many-${i}`, 2));
      expect((await readdir(join(home, 'trash'))).length).toBeLessThanOrEqual(9);
    }
    await trash.emptied();
    expect(await readdir(join(home, 'trash'))).toEqual([]);
  });

  it('goes with the next start where an agent was killed', async () => {
    await mkdir(join(home, 'trash/left/deep'), { recursive: true });
    await writeFile(join(home, 'trash/left/deep/file'), 'x');
    const trash = new Trash(join(home, 'trash'), testLog);
    await trash.start();
    await trash.emptied();
    expect(await readdir(join(home, 'trash'))).toEqual([]);
  });
});
