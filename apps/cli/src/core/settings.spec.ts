import { parseDuration, size, spoken } from './duration.js';
import { maskedKey, normalApiUrl } from './settings.js';
import { nearest } from './suggest.js';

test('times', () => {
  expect(['90', '90s', '1.5m', '1h', '500ms'].map((text) => parseDuration(text, 'x'))).toEqual([
    90_000, 90_000, 90_000, 3_600_000, 500,
  ]);
  for (const text of ['', '0', '-1', '5d', 'soon', '1e3', '999h'])
    expect(() => parseDuration(text, '--timeout')).toThrow('--timeout');
  expect([900, 61_000, 120_000, 3_720_000].map(spoken)).toEqual(['1 s', '1 min 1 s', '2 min', '1 h 2 min']);
  expect([5, 1536, 5 * 1024 ** 3].map(size)).toEqual(['5 B', '1.5 KiB', '5.0 GiB']);
});

test('addresses end in /v1 and hold no user, query or other scheme', () => {
  for (const text of [
    'https://c.example',
    'https://c.example/',
    'https://c.example/v1',
    'https://c.example/v1//',
  ])
    expect(normalApiUrl(text, 'x')).toBe('https://c.example/v1');
  expect(normalApiUrl('https://c.example/nebo/v1/', 'x')).toBe('https://c.example/nebo/v1');
  for (const text of ['c.example', 'file:///x', 'https://u:p@c.example', 'https://c.example/?a=1'])
    expect(() => normalApiUrl(text, '--api-url')).toThrow('--api-url');
});

test('a key is shown as its prefix and last four characters, a short one not at all', () => {
  expect(maskedKey('nebo_live_0123456789abcdef')).toBe('nebo_live_…cdef');
  expect(maskedKey('0123456789abcdef')).toBe('…cdef');
  expect(maskedKey('nebo_live_secret')).toBe('nebo_live_…');
});

test('near names', () => {
  expect(nearest('lst', ['list', 'ls', 'show'])).toEqual(['ls', 'list']);
  expect(nearest('zzz', ['list', 'show'])).toEqual([]);
});
