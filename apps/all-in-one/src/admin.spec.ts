import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

describe('the operator’s commands before anything is sent', () => {
  const home = mkdtempSync(join(tmpdir(), 'nebo-admin-'));
  beforeAll(() => writeFileSync(join(home, 'master.key'), 'ab'.repeat(32)));
  afterAll(() => rmSync(home, { recursive: true }));

  const admin = async (words: string[], stdout: 'pipe' | number = 'pipe') => {
    const source = fileURLToPath(new URL('.', import.meta.url));
    const child = spawn(
      process.execPath,
      [
        ...['--conditions', 'nebo-src', '--import', `${source}../../../tools/test/run-ts.mjs`],
        ...[`${source}admin.ts`, ...words],
      ],
      // Nobody listens on port 1.
      { env: { NEBO_HOME: home, NEBO_API_PORT: '1' }, stdio: ['ignore', stdout, 'pipe'] },
    );
    let stderr = '';
    child.stderr!.on('data', (chunk) => (stderr += chunk));
    if (stdout === 'pipe') child.stdout!.resume();
    const [code] = (await once(child, 'close')) as [number | null];
    return { code, line: stderr.split('\n')[0], stderr };
  };

  it('a command is its own words, not what begins with them', async () => {
    const created = await admin(['key', 'created', '--account', 'a']);
    expect(created).toMatchObject({ code: 2, line: 'admin: there is no command "key created"' });
    expect(await admin(['key', 'create', '--account', 'a'])).toMatchObject({
      code: 1,
      line: expect.stringContaining('Nebo does not answer at http://127.0.0.1:1') as string,
    });
  });

  it('a policy that is no JSON is wrong use of that option', async () => {
    const wrong = await admin(['key', 'create', '--account', 'a', '--policy', 'allow']);
    expect(wrong).toMatchObject({ code: 2, line: 'admin: --policy must be JSON' });
  });

  it('an answer that cannot be written is one line', async () => {
    const full = openSync('/dev/full', 'w');
    const { code, stderr } = await admin(['help'], full);
    closeSync(full);
    expect(code).toBe(1);
    expect(stderr).toMatch(/^admin: ENOSPC.*\n$/);
  });
});
