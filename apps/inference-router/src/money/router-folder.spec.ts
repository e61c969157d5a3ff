import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ConfigError } from '@nebo/service-kit';
import { RouterFolder } from './router-folder.js';

describe('the folder of a router', () => {
  let home: string;
  beforeEach(() => (home = mkdtempSync(join(tmpdir(), 'nebo-folder-'))));
  afterEach(() => rmSync(home, { recursive: true, force: true }));

  it('names the router once for good', async () => {
    const path = join(home, 'router');
    const first = await RouterFolder.take(path);
    await first.release();
    const second = await RouterFolder.take(path);
    expect(second.routerId).toBe(first.routerId);
    expect(first.routerId).toMatch(/^[0-9a-f-]{36}$/);
    await second.release();
  });

  it('belongs to one process at a time; the second one is told which has it', async () => {
    const path = join(home, 'router');
    const first = await RouterFolder.take(path);
    const second = RouterFolder.take(path);
    await expect(second).rejects.toThrow(ConfigError);
    await expect(second).rejects.toThrow(`in use by process ${process.pid}`);
    await first.release();
    await (await RouterFolder.take(path)).release();
  });

  it('takes over what a killed process left', async () => {
    const path = join(home, 'router');
    mkdirSync(path);
    // A socket that nobody listens on looks like any file that cannot be connected to.
    writeFileSync(join(path, 'alive.sock'), '');
    await (await RouterFolder.take(path)).release();
  });

  it('goes to one alone of many that begin at once behind a killed one', async () => {
    for (let round = 0; round < 30; round += 1) {
      const path = join(home, `router-${round}`);
      mkdirSync(path);
      writeFileSync(join(path, 'alive.sock'), '');
      const begun = await Promise.allSettled(
        Array.from({ length: 6 }, async (_, index) => {
          // Each at its own moment: one looks while another has just begun to listen.
          for (let wait = 0; wait < index; wait += 1) await new Promise((resolve) => setImmediate(resolve));
          return RouterFolder.take(path);
        }),
      );
      const folders = begun.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
      expect(folders).toHaveLength(1);
      // The others have taken nothing of it away.
      await expect(RouterFolder.take(path)).rejects.toThrow('in use');
      await folders[0]!.release();
      expect(readdirSync(path)).toEqual(['router-id']);
    }
  });

  it('works where the path is too long for a socket', async () => {
    const path = join(home, 'x'.repeat(120), 'router');
    const first = await RouterFolder.take(path);
    await expect(RouterFolder.take(path)).rejects.toThrow('in use');
    await first.release();
  });

  it('refuses a name that is none', async () => {
    writeFileSync(join(home, 'router-id'), 'nonsense');
    await expect(RouterFolder.take(home)).rejects.toThrow('does not hold the name of a router');
  });
});
