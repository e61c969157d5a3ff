import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { ensureDebianPackages } from './debian.js';
import { findProgram } from './parts.js';

describe('ensureDebianPackages', () => {
  it('refuses what is no package name before it runs anything', async () => {
    for (const name of ['-o=Dpkg::Pre-Invoke::=x', 'a b', 'a;b', '../x', '']) {
      const { found, reason } = await ensureDebianPackages([name]);
      expect(found).toBeNull();
      expect(reason).toContain('not the name');
    }
  });

  it('is content with packages that are present, or says why not', async () => {
    const { found, reason } = await ensureDebianPackages(['base-files']);
    if (findProgram('apt-get') === null) expect(reason).toContain('not a Debian');
    else expect(found).toEqual(['base-files']);
  });
});

describe('what the scripts of tools/ import', () => {
  it.each(['debian.ts', '../../embedded-postgres/src/postgres-binaries.ts'])(
    '%s loads in Node as it is',
    async (name) => {
      const url = new URL(`./${name}`, import.meta.url).href;
      const args = [
        '--input-type=module',
        '-e',
        `process.stdout.write(String(Object.keys(await import(${JSON.stringify(url)})).length > 0))`,
      ];
      expect((await promisify(execFile)(process.execPath, args)).stdout).toBe('true');
    },
  );
});
