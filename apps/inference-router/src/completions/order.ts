import type { Effort } from '../catalogue/model.js';
import type { Offer } from '../catalogue/catalogue.js';

/** A message as it goes to a vendor: text, text and image parts, or the calls of an assistant. */
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
 * Each format (chat, later messages and responses) makes one.
 */
export interface Order {
  format: 'chat';
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
