import { keyForm } from './key-format.js';

describe('key form', () => {
  const form = keyForm('nebo_live_');

  it('makes keys that match, all different', () => {
    const keys = Array.from({ length: 200 }, () => form.generate());
    expect(keys.every((key) => form.matches(key))).toBe(true);
    expect(new Set(keys).size).toBe(200);
    expect(keys[0]).toMatch(/^nebo_live_[0-9A-Za-z]{49}$/);
  });

  it('refuses every single changed character', () => {
    const key = form.generate();
    for (let at = form.prefix.length; at < key.length; at += 1) {
      const other = key[at] === 'a' ? 'b' : 'a';
      expect(form.matches(key.slice(0, at) + other + key.slice(at + 1))).toBe(false);
    }
  });

  it('refuses other prefixes and lengths', () => {
    expect(form.matches(keyForm('neboai_live_').generate())).toBe(false);
    expect(form.matches(`${form.generate()}x`)).toBe(false);
    expect(form.matches('')).toBe(false);
  });
});
