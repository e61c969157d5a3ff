import { readFileSync } from 'node:fs';
import { parseRubles } from '@nebo/contracts';
import { type Config, ConfigError } from '@nebo/service-kit';
import { parse } from 'yaml';
import type { Fields } from '../dialects/dialect.js';
import { dialects } from '../dialects/registry.js';
import { simulatorName, simulatorProvider } from '../simulator/simulator-dialect.js';
import type { UpstreamLimits } from '../upstreams/limits.js';
import { Catalogue, type Offer, type Provider, type ReasoningOverride, type Route } from './catalogue.js';
import { Checked } from './checked.js';
import { type CatalogueModel, efforts, type Level, type ModelPrices, priceKinds } from './model.js';
import { builtInModels } from './models.js';

/** The operator's setting that names the file. */
export const fileSetting = 'NEBO_INFERENCE_CONFIG';

/**
 * The catalogue that the operator's file gives (design.md, 7): models that it names are offered, with its upstreams.
 * Without a file all built-in models are answered by the simulator.
 * @throws ConfigError naming the file and the key, or the variable of `api_key_env`
 */
export function loadCatalogue(config: Config): Catalogue {
  const file = config.optional(fileSetting);
  if (!file) {
    return new Catalogue(
      builtInModels.map((model) => offer(model, [simulatorRoute(model.id)])),
      new Map(),
      null,
    );
  }
  return readCatalogue(file, readText(file), config);
}

const simulatorRoute = (id: string): Route => ({
  provider: simulatorProvider,
  vendorModel: id,
  weight: 1,
  priority: 0,
  dialect: simulatorProvider.dialect,
});

const offer = (model: CatalogueModel, routes: readonly Route[]): Offer => ({
  model,
  routes,
  simulated: routes.every((route) => route.provider.baseUrl === null),
});

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    throw new ConfigError(`${fileSetting}: cannot read ${file}: ${(cause as Error).message}`);
  }
}

/** The same from a text; `file` is the name in messages. */
export function readCatalogue(file: string, text: string, config: Config): Catalogue {
  const root = new Checked(file, '', parseYaml(file, text)).fields(['providers', 'models']);
  const providers = new Map<string, Provider>([[simulatorName, simulatorProvider]]);
  if (root.has('providers')) {
    for (const [name, entry] of root.get('providers').entries()) {
      if (name === simulatorName) throw entry.error('this name is the built-in simulator');
      providers.set(name, readProvider(name, entry, config));
    }
  }
  if (!root.has('models')) throw root.get('models').error('at least one model is needed');
  const prices = new Map<string, Partial<ModelPrices>>();
  const offers = root
    .get('models')
    .entries()
    .map(([id, entry]) => readModel(id, entry, providers, prices));
  if (offers.length === 0) throw root.get('models').error('at least one model is needed');
  return new Catalogue(offers, prices, file);
}

function parseYaml(file: string, text: string): unknown {
  try {
    return parse(text);
  } catch (cause) {
    throw new ConfigError(`${file}: is no YAML: ${(cause as Error).message}`);
  }
}

function readProvider(name: string, entry: Checked, config: Config): Provider {
  const fields = entry.fields(['base_url', 'api_key_env', 'dialect', 'limits', 'images']);
  const address = fields.get('base_url').text();
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (!url || !['http:', 'https:'].includes(url.protocol)) {
    throw fields
      .get('base_url')
      .error(`must be an address starting with http:// or https://, not "${address}"`);
  }
  if (url.username || url.password)
    throw fields.get('base_url').error('must hold no password; use api_key_env');
  const dialectName = fields.get('dialect').text();
  const dialect = Object.hasOwn(dialects, dialectName) ? dialects[dialectName] : undefined;
  if (!dialect)
    throw fields
      .get('dialect')
      .error(`"${dialectName}" is not known; known are ${Object.keys(dialects).join(', ')}`);
  let apiKey: string | null = null;
  if (fields.has('api_key_env')) {
    const variable = fields.get('api_key_env').text();
    apiKey = config.optional(variable) ?? null;
    if (apiKey === null)
      throw fields.get('api_key_env').error(`the environment variable ${variable} is not set`);
    // It goes into a header; told here, since each request would fail by it.
    if (!/^[\x21-\x7e]+$/.test(apiKey))
      throw fields
        .get('api_key_env')
        .error(`the environment variable ${variable} holds what no key has, such as a space or a line break`);
  }
  return {
    name,
    baseUrl: address.replace(/\/+$/, ''),
    apiKey,
    dialect,
    ...(fields.has('limits') ? { limits: readLimits(fields.get('limits')) } : {}),
    ...(fields.has('images') ? { images: readImages(fields.get('images')) } : {}),
  };
}

/** Seconds in the file, 0 for none. */
function readLimits(entry: Checked): Partial<UpstreamLimits> {
  const fields = entry.fields(['connect', 'first_byte', 'idle']);
  const limits: Partial<UpstreamLimits> = {};
  const names = { connect: 'connect', first_byte: 'firstByte', idle: 'idle' } as const;
  for (const name of ['connect', 'first_byte', 'idle'] as const) {
    if (!fields.has(name)) continue;
    const seconds = fields.get(name).int(0);
    if (seconds > 1_000_000) throw fields.get(name).error('must be at most 1000000 seconds; 0 is no limit');
    limits[names[name]] = seconds * 1_000;
  }
  return limits;
}

function readImages(entry: Checked): 'links' | 'bytes' {
  const word = entry.text();
  if (word !== 'links' && word !== 'bytes') throw entry.error(`must be links or bytes, not "${word}"`);
  return word;
}

const modelKeys = [
  'upstreams',
  'price',
  'owned_by',
  'context_window',
  'max_output_tokens',
  'image_tokens_max',
  'capabilities',
];

function readModel(
  id: string,
  entry: Checked,
  providers: ReadonlyMap<string, Provider>,
  prices: Map<string, Partial<ModelPrices>>,
): Offer {
  const fields = entry.fields(modelKeys);
  const known = builtInModels.find((model) => model.id === id);
  if (!fields.has('upstreams')) throw fields.get('upstreams').error('at least one upstream is needed');
  const routes = fields
    .get('upstreams')
    .items()
    .map((item) => readRoute(id, item, providers));
  if (fields.has('price')) prices.set(id, readPrices(fields.get('price'), known === undefined));
  else if (!known) throw fields.get('price').error('a model that is not built in needs its prices');
  const number = (key: string, fallback: number | undefined, min = 1): number => {
    if (fields.has(key) || fallback === undefined) return fields.get(key).int(min);
    return fallback;
  };
  const abilities = fields.has('capabilities')
    ? fields.get('capabilities').fields(['tools', 'vision', 'reasoning'])
    : undefined;
  const can = (key: 'tools' | 'vision' | 'reasoning', fallback: boolean): boolean =>
    abilities?.has(key) ? abilities.get(key).bool() : fallback;
  const vision = can('vision', known?.vision ?? false);
  const reasons = can('reasoning', known ? known.reasoning !== null : false);
  const none = { input: 0n, cache_read: 0n, output: 0n };
  return offer(
    {
      id,
      ownedBy: fields.has('owned_by')
        ? fields.get('owned_by').text()
        : (known?.ownedBy ?? routes[0]!.provider.name),
      contextWindow: number('context_window', known?.contextWindow),
      maxOutputTokens: number('max_output_tokens', known?.maxOutputTokens),
      tools: can('tools', known?.tools ?? true),
      vision,
      reasoning: reasons ? (known?.reasoning ?? { off: true }) : null,
      ...(known?.alwaysOff && !reasons ? { alwaysOff: true } : {}),
      imageTokensMax: vision ? number('image_tokens_max', known?.imageTokensMax || 16_384) : 0,
      samplePrices: known?.samplePrices ?? { ...none, ...prices.get(id) },
    },
    routes,
  );
}

function readRoute(id: string, entry: Checked, providers: ReadonlyMap<string, Provider>): Route {
  const fields = entry.fields(['provider', 'model', 'weight', 'priority', 'reasoning']);
  const name = fields.get('provider').text();
  const provider = providers.get(name);
  if (!provider) throw fields.get('provider').error(`there is no provider "${name}"`);
  return {
    provider,
    vendorModel: fields.has('model') ? fields.get('model').text() : id,
    weight: fields.has('weight') ? fields.get('weight').int(1) : 1,
    priority: fields.has('priority') ? fields.get('priority').int(0) : 0,
    dialect: provider.dialect,
    ...(fields.has('reasoning') ? { reasoning: readReasoning(fields.get('reasoning')) } : {}),
  };
}

function readReasoning(entry: Checked): ReasoningOverride {
  const fields = entry.fields(['off', 'on', 'levels']);
  const override: { off?: Fields; on?: Fields; levels?: Partial<Record<Level, Fields>> } = {};
  if (fields.has('off')) override.off = fields.get('off').record();
  if (fields.has('on')) override.on = fields.get('on').record();
  if (fields.has('levels')) {
    const levels = fields.get('levels').fields(efforts.filter((effort) => effort !== 'none'));
    override.levels = Object.fromEntries(
      efforts.filter((effort) => levels.has(effort)).map((effort) => [effort, levels.get(effort).record()]),
    );
  }
  return override;
}

function readPrices(entry: Checked, all: boolean): Partial<ModelPrices> {
  const fields = entry.fields(priceKinds);
  const prices: Partial<ModelPrices> = {};
  for (const kind of priceKinds) {
    if (!fields.has(kind) && !all) continue;
    const field = fields.get(kind);
    // A YAML number such as 0.1 is not exactly what was written.
    const text =
      typeof field.value === 'number' && Number.isSafeInteger(field.value)
        ? String(field.value)
        : field.value;
    if (typeof text !== 'string' || !/^\d{1,9}(\.\d{1,9})?$/.test(text)) {
      throw field.error('must be rubles per million tokens as a decimal in quotes, such as "60.00"');
    }
    prices[kind] = parseRubles(text);
  }
  return prices;
}
