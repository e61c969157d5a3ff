import type { Effort } from '../catalogue/model.js';
import type { Offer } from '../catalogue/catalogue.js';

/** The wire formats, by the words that logs and metrics have. */
export const formats = ['chat', 'messages', 'responses'] as const;
export type FormatName = (typeof formats)[number];

/**
 * A message as it goes to a vendor: text, text and image parts, or the calls of an assistant. A tool's message may hold
 * images too; `vendorRequest` puts them where vendors take them.
 */
export interface OrderMessage {
  role: 'system' | 'user' | 'assistant' | 'tool';
  content: string | readonly OrderPart[] | null;
  name?: string;
  tool_calls?: readonly ToolCall[];
  tool_call_id?: string;
  reasoning_content?: string;
}

export type OrderPart =
  { type: 'text'; text: string } | { type: 'image_url'; image_url: { url: string; detail?: string } };

export interface ToolCall {
  id: string;
  type: 'function';
  function: { name: string; arguments: string };
}

export interface Tool {
  type: 'function';
  function: { name: string; description?: string; parameters?: unknown; strict?: unknown };
}

/**
 * What a client asks for, checked and freed of its format: the one thing that admission, dialects and upstreams work on.
 * Each format makes one; what a format wants of the answer stays with its writers.
 */
export interface Order {
  format: FormatName;
  offer: Offer;
  messages: readonly OrderMessage[];
  tools: readonly Tool[];
  toolChoice: unknown;
  /** Sampling and output settings that every vendor knows by the same name. */
  settings: Readonly<Record<string, unknown>>;
  /** Undefined: the client said nothing, or the model has no reasoning. */
  effort: Effort | undefined;
  /** Most output tokens, reasoning included. */
  ceiling: number;
  stream: boolean;
}
