import { readFileSync } from 'node:fs';
import { Config, ConfigError } from '@nebo/service-kit';
import { loadCatalogue, readCatalogue } from './config-file.js';
import { builtInModels } from './models.js';

const read = (text: string, env: Record<string, string> = {}) =>
  readCatalogue('/etc/nebo/inference.yaml', text, new Config(env));
const provider = 'providers:\n  glm: { base_url: "https://example.org/v1/", dialect: zhipu }\n';

describe("the operator's file of models", () => {
  it('names upstreams and overrides what is built in', () => {
    const catalogue = read(
      `${provider.replace(' }', ', api_key_env: GLM_KEY }')}models:
  glm-5.3:
    upstreams: [{ provider: glm, model: other-name, weight: 3 }, { provider: simulator }]
    price: { input: "60.00", output: 240 }
    max_output_tokens: 1000
  my-model: { upstreams: [{ provider: glm, reasoning: { off: { thinking: false }, levels: { low: { effort: 1 } } } }], context_window: 8192, max_output_tokens: 2048, price: { input: "1", cache_read: "0.5", output: "2" }, capabilities: { vision: true } }
`,
      { GLM_KEY: 'secret' },
    );
    expect(catalogue.offers.map((offer) => offer.model.id)).toEqual(['glm-5.3', 'my-model']);
    const glm = catalogue.get('glm-5.3')!;
    expect(glm.model).toMatchObject({ contextWindow: 1_048_576, maxOutputTokens: 1_000, tools: true });
    expect(glm.routes[0]).toMatchObject({
      vendorModel: 'other-name',
      weight: 3,
      provider: { baseUrl: 'https://example.org/v1', apiKey: 'secret' },
    });
    expect(glm.routes[1]).toMatchObject({ vendorModel: 'glm-5.3', weight: 1, provider: { baseUrl: null } });
    expect(glm.simulated).toBe(false);
    expect(catalogue.priceOverrides.get('glm-5.3')).toEqual({
      input: 60_000_000_000n,
      output: 240_000_000_000n,
    });
    expect(catalogue.get('my-model')!.model).toMatchObject({
      ownedBy: 'glm',
      vision: true,
      imageTokensMax: 16_384,
      reasoning: null,
    });
    expect(catalogue.get('my-model')!.routes[0]!.reasoning).toEqual({
      off: { thinking: false },
      levels: { low: { effort: 1 } },
    });
    expect(catalogue.get('kimi-k3')).toBeUndefined();
  });

  it('sets priorities, the limits of a provider and its way of pictures', () => {
    const catalogue = read(`
providers:
  near: { base_url: "http://10.0.0.5/v1", dialect: openai, limits: { connect: 1, first_byte: 0, idle: 30 }, images: bytes }
  far: { base_url: "https://example.org/v1", dialect: moonshot, images: links }
models:
  kimi-k3: { upstreams: [{ provider: near }, { provider: far, priority: 7, weight: 2 }] }
`);
    const [near, far] = catalogue.get('kimi-k3')!.routes;
    expect(near).toMatchObject({
      priority: 0,
      provider: { limits: { connect: 1_000, firstByte: 0, idle: 30_000 }, images: 'bytes' },
    });
    expect(far).toMatchObject({ priority: 7, weight: 2, provider: { images: 'links' } });
    expect(far!.provider.limits).toBeUndefined();
  });

  it.each([
    ['no YAML', 'models: [', /inference\.yaml: is no YAML/],
    ['not a mapping', '[]', /the file: must be a mapping/],
    ['no models', provider, /models: at least one model is needed/],
    ['a typing error', 'provders: {}\n', /provders: there is no such setting; known are providers, models/],
    [
      'an unknown dialect',
      'providers: { x: { base_url: "http://x", dialect: klingon } }\n',
      /providers\.x\.dialect: "klingon" is not known; known are openai/,
    ],
    [
      'a dialect of the prototype',
      'providers: { x: { base_url: "http://x", dialect: constructor } }\n',
      /providers\.x\.dialect/,
    ],
    [
      'another protocol',
      'providers: { x: { base_url: "ftp://x", dialect: openai } }\n',
      /providers\.x\.base_url: must be an address starting with http/,
    ],
    [
      'a password in the address',
      'providers: { x: { base_url: "http://a:b@x", dialect: openai } }\n',
      /api_key_env/,
    ],
    [
      'an unset variable',
      'providers: { x: { base_url: "http://x", dialect: openai, api_key_env: NO_SUCH_KEY } }\n',
      /providers\.x\.api_key_env: the environment variable NO_SUCH_KEY is not set/,
    ],
    [
      'a key with a line break',
      'providers: { x: { base_url: "http://x", dialect: openai, api_key_env: TORN_KEY } }\n',
      /providers\.x\.api_key_env: the environment variable TORN_KEY holds what no key has, such as a space/,
    ],
    [
      'an unknown provider',
      `${provider}models: { glm-5.3: { upstreams: [{ provider: y }] } }\n`,
      /models\.glm-5\.3\.upstreams\[0\]\.provider: there is no provider "y"/,
    ],
    [
      'no upstreams',
      `${provider}models: { glm-5.3: { upstreams: [] } }\n`,
      /models\.glm-5\.3\.upstreams: must be a list/,
    ],
    [
      'a weight of nothing',
      `${provider}models: { glm-5.3: { upstreams: [{ provider: glm, weight: 0 }] } }\n`,
      /weight: must be a whole number from 1/,
    ],
    [
      'an inexact price',
      `${provider}models: { glm-5.3: { upstreams: [{ provider: glm }], price: { input: 0.1 } } }\n`,
      /models\.glm-5\.3\.price\.input: must be rubles per million tokens as a decimal in quotes/,
    ],
    [
      'a negative price',
      `${provider}models: { glm-5.3: { upstreams: [{ provider: glm }], price: { input: "-1" } } }\n`,
      /price\.input/,
    ],
    [
      'a new model without prices',
      `${provider}models: { mine: { upstreams: [{ provider: glm }] } }\n`,
      /models\.mine\.price/,
    ],
    [
      'a new model without sizes',
      `${provider}models: { mine: { upstreams: [{ provider: glm }], price: { input: "1", cache_read: "1", output: "1" } } }\n`,
      /models\.mine\.context_window/,
    ],
    [
      'a negative priority',
      `${provider}models: { glm-5.3: { upstreams: [{ provider: glm, priority: -1 }] } }\n`,
      /upstreams\[0\]\.priority: must be a whole number from 0/,
    ],
    [
      'a limit that is no number of seconds',
      'providers: { x: { base_url: "http://x", dialect: openai, limits: { idle: 5m } } }\n',
      /providers\.x\.limits\.idle: must be a whole number from 0/,
    ],
    [
      'a limit on the whole',
      'providers: { x: { base_url: "http://x", dialect: openai, limits: { total: 5 } } }\n',
      /providers\.x\.limits\.total: there is no such setting; known are connect, first_byte, idle/,
    ],
    [
      'a limit beyond what timers can run',
      'providers: { x: { base_url: "http://x", dialect: openai, limits: { idle: 99999999 } } }\n',
      /at most 1000000 seconds/,
    ],
    [
      'another way of pictures',
      'providers: { x: { base_url: "http://x", dialect: openai, images: text } }\n',
      /providers\.x\.images: must be links or bytes, not "text"/,
    ],
    [
      "the simulator's name",
      'providers: { simulator: { base_url: "http://x", dialect: openai } }\n',
      /built-in simulator/,
    ],
  ])('refuses %s, naming file and key', (_what, text, message) => {
    const env = { TORN_KEY: 'sk-12\n' };
    expect(() => read(text, env)).toThrow(ConfigError);
    expect(() => read(text, env)).toThrow(message);
  });

  it('without a file all built-in models go to the simulator; a file that is absent is refused by name', () => {
    const catalogue = loadCatalogue(new Config({}));
    expect(catalogue.simulated()).toEqual(builtInModels.map(({ id }) => id));
    expect(() => loadCatalogue(new Config({ NEBO_INFERENCE_CONFIG: '/no/such.yaml' }))).toThrow(
      /NEBO_INFERENCE_CONFIG: cannot read \/no\/such\.yaml/,
    );
  });

  it('the example of the repository is good and names every built-in model', () => {
    const text = readFileSync(
      new URL('../../../../deploy/config/inference.example.yaml', import.meta.url),
      'utf8',
    );
    const env = Object.fromEntries(
      [...text.matchAll(/api_key_env: (\w+)/g)].map((match) => [match[1]!, 'key']),
    );
    const catalogue = readCatalogue('example', text, new Config(env));
    expect(catalogue.offers.map((offer) => offer.model.id).sort()).toEqual(
      [...builtInModels.map(({ id }) => id), 'house-model'].sort(),
    );
    expect(catalogue.simulated()).toEqual([]);
  });
});
