import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MasterKey } from './secrets.js';

describe('master key', () => {
  const folder = mkdtempSync(join(tmpdir(), 'nebo-key-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  const path = join(folder, 'sub', 'master.key');
  const key = MasterKey.fromFile(path);

  it('is made once, readable by its owner only, and the same at the next start', () => {
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(MasterKey.fromFile(path).derive('x')).toEqual(key.derive('x'));
    expect(key.derive('x')).not.toEqual(key.derive('y'));
  });

  it('a broken file is refused by its setting’s name', () => {
    const broken = join(folder, 'broken');
    writeFileSync(broken, 'not a key');
    expect(() => MasterKey.fromFile(broken)).toThrow('NEBO_MASTER_KEY_FILE');
  });

  it('opens what it sealed, for the same context only', () => {
    const sealed = key.seal('пароль', 'account|app|NAME');
    expect(key.open(sealed, 'account|app|NAME')).toBe('пароль');
    expect(() => key.open(sealed, 'account|app|OTHER')).toThrow();
    expect(sealed.includes(Buffer.from('пароль'))).toBe(false);
    expect(key.seal('пароль', 'c')).not.toEqual(key.seal('пароль', 'c'));
  });

  it('refuses a changed ciphertext', () => {
    const sealed = key.seal('secret', 'c');
    sealed[sealed.length - 1]! ^= 1;
    expect(() => key.open(sealed, 'c')).toThrow();
  });
});
