import { Config, type Runtime } from '@nebo/service-kit';
import { Settings } from './settings.js';

const publicUrl = (env: Record<string, string>) =>
  new Settings({ config: new Config(env) } as Runtime).publicUrl;

describe('the address of the control API for git hosts and browsers', () => {
  it('is this machine’s, or the one that is set, without a slash behind', () => {
    expect(publicUrl({})).toBe('http://127.0.0.1:4000');
    expect(publicUrl({ NEBO_API_PORT: '4100' })).toBe('http://127.0.0.1:4100');
    expect(publicUrl({ NEBO_PUBLIC_URL: 'https://cloud.example.com/' })).toBe('https://cloud.example.com');
  });

  it.each(['cloud.example.com', 'cloud.example.com:4000', 'ftp://cloud.example.com'])(
    '%s stops the start: no git host would take a webhook with it',
    (address) => {
      expect(() => publicUrl({ NEBO_PUBLIC_URL: address })).toThrow(
        /^NEBO_PUBLIC_URL must be an address starting with https:\/\//,
      );
    },
  );
});
