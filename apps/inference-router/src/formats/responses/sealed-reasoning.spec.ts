import { randomBytes } from 'node:crypto';
import { MasterKey } from '@nebo/service-kit';
import { ReasoningSeal } from './sealed-reasoning.js';

describe('sealed reasoning', () => {
  const key = new MasterKey(randomBytes(32));
  const seal = new ReasoningSeal(key);
  const text = 'Так. 🙂 "first"\n';

  it('opens for its account, on every replica that has the master key', () => {
    const sealed = seal.seal(text, 'a');
    expect(sealed).toMatch(/^nebo1\.[\w-]+$/);
    expect(sealed).not.toContain('first');
    expect(new ReasoningSeal(key).open(sealed, 'a')).toBe(text);
    expect(seal.seal(text, 'a')).not.toBe(sealed);
  });

  it('opens for nobody else', () => {
    const sealed = seal.seal(text, 'a');
    expect(seal.open(sealed, 'b')).toBeNull();
    expect(new ReasoningSeal(new MasterKey(randomBytes(32))).open(sealed, 'a')).toBeNull();
    // The key of stored secrets is another one.
    expect(() => key.open(Buffer.from(sealed.slice(6), 'base64url'), 'a')).toThrow();
  });

  it.each([
    ['nothing', null],
    ['a number', 7],
    ['another service’s', 'gAAAAABo'],
    ['an empty one', 'nebo1.'],
    ['a later version', 'nebo2.AAAA'],
    ['a short one', 'nebo1.AQ'],
  ])('%s does not open', (_what, sealed) => {
    expect(seal.open(sealed, 'a')).toBeNull();
  });

  it('a changed one does not open, whichever byte it is', () => {
    const bytes = Buffer.from(seal.seal('text', 'a').slice(6), 'base64url');
    for (let at = 0; at < bytes.length; at += 1) {
      const changed = Buffer.from(bytes);
      changed[at]! ^= 1;
      expect(seal.open(`nebo1.${changed.toString('base64url')}`, 'a')).toBeNull();
    }
  });
});
