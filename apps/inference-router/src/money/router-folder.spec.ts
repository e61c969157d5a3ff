import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
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
