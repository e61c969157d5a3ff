import type { Nano } from '@nebo/contracts';

/** Values of `reasoning_effort` that are accepted; the last two mean the vendor's highest (inference-wire.md, 7.1). */
export const efforts = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const;
export type Effort = (typeof efforts)[number];
/** An effort that is not "off". */
export type Level = Exclude<Effort, 'none'>;

/** How a model's reasoning may be switched. */
export interface ReasoningRules {
  /** Can `none` switch it off? Otherwise `none` is refused. */
  off: boolean;
  /** What is sent to the vendor when the client says nothing; absent: nothing, the vendor's default rules. */
  default?: 'on' | 'off';
  /** The vendor's word for a level, where this model differs from its dialect. */
  levels?: Partial<Record<Level, string>>;
}

/** Rubles per million tokens, as 10⁻⁹ rubles. */
export interface ModelPrices {
  input: Nano;
  cache_read: Nano;
  output: Nano;
}

/** A model as the catalogue describes it; where it runs is said by the operator's file. */
export interface CatalogueModel {
  id: string;
  ownedBy: string;
  /** Tokens. */
  contextWindow: number;
  /** Tokens. */
  maxOutputTokens: number;
  tools: boolean;
  vision: boolean;
  /** Null: no reasoning; the vendor is told so where it would reason by default. */
  reasoning: ReasoningRules | null;
  /** Vendors that would reason although the catalogue says no are told "off" with every request. */
  alwaysOff?: boolean;
  /** Most tokens that one image can cost; what an image part is held at. 0 without vision. */
  imageTokensMax: number;
  /** Prices where identity-billing has none (its own sample file has the same). Samples, not offers of any vendor. */
  samplePrices: ModelPrices;
}

/** What prices are called in identity-billing's table. */
export const priceId = (model: string, kind: keyof ModelPrices): string => `model.${model}.${kind}`;
export const priceKinds = ['input', 'cache_read', 'output'] as const;
