import { Config, ConfigError, type Runtime } from '@nebo/service-kit';
import { ruble } from '@nebo/contracts';
import { Settings } from './settings.js';

const settings = (env: Record<string, string>) => new Settings({ config: new Config(env) } as Runtime);

describe('settings', () => {
  it('have defaults', () => {
    expect(settings({})).toMatchObject({
      realTopupMin: 100n * ruble,
      keyPrefix: 'nebo_live_',
      inferenceKeyPrefix: 'neboai_live_',
      reconcileSeconds: 3_600,
      kafkaBrokers: [],
      sliceTermSeconds: 30,
    });
    expect(settings({ NEBO_REAL_TOPUP_MIN: '0.5', NEBO_KEY_PREFIX: 'acme_live_' })).toMatchObject({
      realTopupMin: ruble / 2n,
      keyPrefix: 'acme_live_',
    });
  });

  it.each([
    ['NEBO_REAL_TOPUP_MIN', '-1'],
    ['NEBO_REAL_TOPUP_MIN', '0'],
    ['NEBO_REAL_TOPUP_MIN', 'much'],
    ['NEBO_KEY_PREFIX', 'acme_'],
    ['NEBO_INFERENCE_KEY_PREFIX', 'A b live_'],
    ['NEBO_RECONCILE_SECONDS', '0'],
    ['NEBO_SLICE_TERM', '0'],
  ])('a wrong %s is named: %s', (name, value) => {
    expect(() => settings({ [name]: value })).toThrow(ConfigError);
    expect(() => settings({ [name]: value })).toThrow(name);
  });
});
