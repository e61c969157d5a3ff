import { challengeName, challengeText, domainName } from './domain-name.js';

describe('names of custom domains', () => {
  it.each([
    ['shop.example.com', 'shop.example.com'],
    ['Shop.Example.COM.', 'shop.example.com'],
    ['  example.com ', 'example.com'],
    ['*.Example.com', '*.example.com'],
    ['пример.рф', 'xn--e1afmkfd.xn--p1ai'],
    ['*.BÜCHER.example', '*.xn--bcher-kva.example'],
    ['xn--e1afmkfd.xn--p1ai', 'xn--e1afmkfd.xn--p1ai'],
    [`${'a'.repeat(63)}.example`, `${'a'.repeat(63)}.example`],
  ])('%s is %s', (text, name) => expect(domainName(text)).toBe(name));

  it.each([
    '',
    '.',
    'example',
    '*.example',
    '*',
    '*.*.example.com',
    'a.*.example.com',
    'a*.example.com',
    '192.0.2.1',
    '0x7f.1',
    '[::1]',
    'a..example.com',
    '.example.com',
    'example.com..',
    '-a.example.com',
    'a-.example.com',
    'a_b.example.com',
    'a b.example.com',
    'http://example.com',
    'example.com/path',
    'example.com:80',
    'user@example.com',
    'example.com%00',
    'xn--\u0000.example.com',
    `${'a'.repeat(64)}.example`,
    `${'a.'.repeat(130)}example`,
  ])('%j is none', (text) => expect(domainName(text)).toBeNull());

  it('a challenge is of the name below a wildcard, another text for each account and name', () => {
    expect(challengeName('*.example.com')).toBe('_nebo-challenge.example.com');
    const key = Buffer.from('k');
    expect(challengeText(key, 'a', '*.example.com')).toBe(challengeText(key, 'a', 'example.com'));
    expect(challengeText(key, 'b', 'example.com')).not.toBe(challengeText(key, 'a', 'example.com'));
    expect(challengeText(key, 'a', 'other.com')).not.toBe(challengeText(key, 'a', 'example.com'));
    expect(challengeText(key, 'a', 'example.com')).toMatch(/^[0-9a-f]{40}$/);
  });
});
