import { Config, ConfigError } from './config.js';

const config = new Config({
  PORT: '4000',
  BAD: '4e3',
  HUGE: '70000',
  EMPTY: '',
  LIST: 'a, b,,c ',
  RATE: '10/60',
  OFF: '0',
  URL: 'http://x:1',
  FTP: 'ftp://x',
});

describe('config', () => {
  it('reads what is there and falls back for what is not', () => {
    expect(config.port('PORT', 1)).toBe(4000);
    expect(config.port('EMPTY', 7)).toBe(7);
    expect(config.text('EMPTY', 'x')).toBe('x');
    expect(config.list('LIST')).toEqual(['a', 'b', 'c']);
    expect(config.rate('RATE', '1/1')).toEqual({ requests: 10, seconds: 60 });
    expect(config.rate('OFF', '1/1')).toBeNull();
    expect(config.url('URL', undefined, ['http:'])).toBe('http://x:1');
  });

  it.each([
    ['BAD', () => config.port('BAD', 1)],
    ['HUGE', () => config.port('HUGE', 1)],
    ['MISSING', () => config.text('MISSING')],
    ['PORT', () => config.rate('PORT', '1/1')],
    ['FTP', () => config.url('FTP', undefined, ['http:', 'https:'])],
    ['MISSING', () => config.url('MISSING', undefined, ['http:'])],
  ])('a wrong value stops with the name %s', (name, read) => {
    expect(read).toThrow(ConfigError);
    expect(read).toThrow(name);
  });
});
