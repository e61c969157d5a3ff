import { parseRubles } from '@nebo/contracts';
import type { CatalogueModel, ModelPrices } from './model.js';

const million = 1_048_576;

const rubles = (input: string, cacheRead: string, output: string): ModelPrices => ({
  input: parseRubles(input),
  cache_read: parseRubles(cacheRead),
  output: parseRubles(output),
});

/**
 * The models of the spec (spec-inference-api.md, 2; exact sizes: inference-wire.md, 7.7; reasoning: spec 4 and
 * inference-wire.md, 7.8). Image maxima are upper bounds of what vendors' own counting gives for their largest picture.
 */
export const builtInModels: readonly CatalogueModel[] = [
  {
    id: 'glm-5.3',
    ownedBy: 'zhipu',
    contextWindow: million,
    maxOutputTokens: 131_072,
    tools: true,
    vision: false,
    reasoning: {
      off: false,
      default: 'on',
      levels: { minimal: 'low', low: 'low', medium: 'high', high: 'high', xhigh: 'max', max: 'max' },
    },
    imageTokensMax: 0,
    samplePrices: rubles('60', '12', '240'),
  },
  {
    // Hosts of this one reason by default, while the spec says it has no reasoning.
    id: 'glm-5.2',
    ownedBy: 'zhipu',
    contextWindow: million,
    maxOutputTokens: 128_000,
    tools: true,
    vision: false,
    reasoning: null,
    alwaysOff: true,
    imageTokensMax: 0,
    samplePrices: rubles('50', '10', '200'),
  },
  {
    id: 'kimi-k3',
    ownedBy: 'moonshot',
    contextWindow: million,
    maxOutputTokens: 262_144,
    tools: true,
    vision: true,
    reasoning: { off: true },
    imageTokensMax: 16_384,
    samplePrices: rubles('70', '14', '280'),
  },
  {
    id: 'qwen3.8-max',
    ownedBy: 'alibaba',
    contextWindow: million,
    maxOutputTokens: 131_072,
    tools: true,
    vision: true,
    reasoning: { off: false, default: 'on' },
    imageTokensMax: 16_384,
    samplePrices: rubles('110', '22', '440'),
  },
  {
    id: 'deepseek-v4-pro',
    ownedBy: 'deepseek',
    contextWindow: million,
    maxOutputTokens: 393_216,
    tools: true,
    vision: false,
    reasoning: { off: true, default: 'on' },
    imageTokensMax: 0,
    samplePrices: rubles('45', '4.5', '135'),
  },
  {
    id: 'mimo-v2.6-pro',
    ownedBy: 'xiaomi',
    contextWindow: million,
    maxOutputTokens: 131_072,
    tools: true,
    vision: true,
    reasoning: { off: true },
    imageTokensMax: 16_384,
    samplePrices: rubles('40', '8', '120'),
  },
  {
    id: 'minimax-m3',
    ownedBy: 'minimax',
    contextWindow: 512_000,
    maxOutputTokens: 512_000,
    tools: true,
    vision: false,
    reasoning: { off: true },
    imageTokensMax: 0,
    samplePrices: rubles('30', '3', '120'),
  },
  {
    id: 'qwen3-coder-next',
    ownedBy: 'alibaba',
    contextWindow: 262_144,
    maxOutputTokens: 65_536,
    tools: true,
    vision: false,
    reasoning: null,
    imageTokensMax: 0,
    samplePrices: rubles('25', '5', '100'),
  },
  {
    id: 'glm-5v-turbo',
    ownedBy: 'zhipu',
    contextWindow: 202_752,
    maxOutputTokens: 131_072,
    tools: true,
    vision: true,
    reasoning: {
      off: true,
      levels: { minimal: 'minimal', low: 'low', medium: 'medium', high: 'high', xhigh: 'high', max: 'high' },
    },
    // About 6,000 at 4K (spec 4); the vendor scales larger pictures down.
    imageTokensMax: 8_192,
    samplePrices: rubles('35', '7', '140'),
  },
  {
    id: 'deepseek-v4.1-flash',
    ownedBy: 'deepseek',
    contextWindow: million,
    maxOutputTokens: 393_216,
    tools: true,
    vision: true,
    reasoning: { off: true, default: 'on' },
    imageTokensMax: 16_384,
    samplePrices: rubles('12', '1.2', '36'),
  },
  {
    id: 'mimo-v2.6-flash',
    ownedBy: 'xiaomi',
    contextWindow: million,
    maxOutputTokens: 131_072,
    tools: true,
    vision: true,
    reasoning: { off: true },
    imageTokensMax: 16_384,
    samplePrices: rubles('10', '1', '30'),
  },
];
