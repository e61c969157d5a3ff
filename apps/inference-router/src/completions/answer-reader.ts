import type { Route } from '../catalogue/catalogue.js';
import { readCounters } from '../dialects/counters.js';
import type { Counters, Finish } from '../dialects/dialect.js';
import { maskWords } from '../upstreams/refusal.js';
import { type Json, type UpstreamEvent } from '../upstreams/upstream-event.js';
import { UpstreamError } from '../upstreams/upstream-error.js';
import type { OrderMessage, ToolCall } from './order.js';
import type { Piece } from './piece.js';
import { ThinkTags } from './think-tags.js';
import { ToolCallReader } from './tool-call-reader.js';

const finishes: ReadonlyMap<string, Finish | 'broken'> = new Map<string, Finish | 'broken'>([
  ['stop', 'stop'],
  ['length', 'length'],
  ['max_tokens', 'length'],
  ['tool_calls', 'tool_calls'],
  ['function_call', 'tool_calls'],
  ['content_filter', 'content_filter'],
  // Of open servers and aggregators that stop in the middle: the part is no answer.
  ['abort', 'broken'],
  ['error', 'broken'],
]);

/** What of a route says how its answers are read. */
export type AnswerSource = Pick<Route, 'dialect' | 'provider'>;

/** Reads the events of one answer: pieces go on, the finish reason and the counters stay until the end. */
export class AnswerReader {
  finish: Finish | null = null;
  /** The newest counters. Growing ones replace each other; they are never summed. */
  counters: Counters | null = null;
  private readonly calls: ToolCallReader;
  private readonly reasoning: string[] = [];
  /** Reasoning that a host may leave inside the text; null: no such habit, or the text is past it. */
  private tags: ThinkTags | null;

  /**
   * @param hideReasoning the client switched reasoning off, whatever the vendor made of it
   * @param history what was asked
   */
  constructor(
    private readonly source: AnswerSource,
    private readonly hideReasoning: boolean,
    history: readonly OrderMessage[] = [],
  ) {
    this.calls = new ToolCallReader(history);
    this.tags = source.dialect.thinkTags ? new ThinkTags() : null;
  }

  /** @throws UpstreamError when the event is an error, or nothing sensible, instead of a piece of the answer */
  read(event: UpstreamEvent): Piece | null {
    return (this.tags ? null : event.plain()) ?? this.readParsed(event.json());
  }

  private readParsed(chunk: Json): Piece | null {
    checkChunk(chunk, this.source);
    this.counters = readCounters(chunk) ?? this.counters;
    const choices = chunk['choices'];
    const choice = Array.isArray(choices)
      ? (choices as (Json | null)[]).find((one) => one && (one['index'] ?? 0) === 0)
      : undefined;
    if (!choice) return null;
    const reason = choice['finish_reason'];
    const isLast = typeof reason === 'string' && reason !== '';
    const piece = this.pieceOf((choice['delta'] ?? {}) as Json, isLast);
    if (choice['logprobs'] != null && piece) piece.logprobs = choice['logprobs'];
    if (isLast) this.finish = this.finishOf(reason);
    return piece;
  }

  /** The tool calls of the answer. */
  toolCalls(): ToolCall[] {
    return this.calls.all();
  }

  /** All reasoning, hidden or not. */
  reasoningText(): string {
    return this.reasoning.join('');
  }

  private pieceOf(delta: Json, isLast: boolean): Piece | null {
    const piece: Piece = {};
    // `reasoning` is what some servers call it.
    let reasoning = textOf(delta['reasoning_content']) || textOf(delta['reasoning']);
    reasoning ||= reasoningDetails(delta['reasoning_details']);
    let content = textOf(delta['content']);
    if (this.tags) {
      // Reasoning in its own field: this host does split, and a tag in the text is the model's own words.
      if (reasoning !== '') this.tags = null;
      else {
        const calls = delta['tool_calls'];
        const split = this.tags.feed(content, isLast || (Array.isArray(calls) && calls.length > 0));
        content = split.content;
        reasoning = split.reasoning;
        if (split.isOver) this.tags = null;
      }
    }
    if (content !== '') piece.content = content;
    if (reasoning !== '') {
      this.reasoning.push(reasoning);
      if (!this.hideReasoning) piece.reasoning = reasoning;
    }
    if (Array.isArray(delta['tool_calls'])) {
      const calls = this.calls.read(delta['tool_calls'] as Json[]);
      if (calls.length > 0) piece.toolCalls = calls;
    }
    return Object.keys(piece).length > 0 ? piece : null;
  }

  private finishOf(reason: string): Finish {
    const own = this.source.dialect.finish;
    const finish = (own && Object.hasOwn(own, reason) ? own[reason] : finishes.get(reason)) ?? 'stop';
    if (finish === 'broken') throw new UpstreamError('broken', `the vendor gave up: ${reason}`);
    // Agents run the calls of an answer only when the reason says so.
    return finish === 'stop' && this.calls.seen ? 'tool_calls' : finish;
  }
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

/** Reasoning as a list of parts with `text`, which some hosts send instead of the field. */
function reasoningDetails(value: unknown): string {
  if (!Array.isArray(value)) return '';
  return (value as (Json | null)[]).map((part) => textOf(part?.['text'])).join('');
}

/** @throws UpstreamError when a chunk is the vendor's error, inside an answer that began with 200 */
export function checkChunk(chunk: Json, { dialect, provider }: AnswerSource): void {
  const failure = dialect.failure?.(chunk);
  if (failure) {
    throw new UpstreamError('refused', `an error inside a successful answer: ${failure.message}`, {
      status: failure.status,
      publicMessage: maskWords(failure.message, provider),
    });
  }
  const error = chunk['error'];
  if (error === undefined || error === null) return;
  const { code, status, message } = (typeof error === 'object' ? error : { message: error }) as Json;
  const number = [status, code]
    .map(Number)
    .find((value) => Number.isInteger(value) && value >= 400 && value < 600);
  throw new UpstreamError(
    'refused',
    `an error inside a successful answer: ${JSON.stringify(error).slice(0, 500)}`,
    {
      status: number ?? 502,
      ...(typeof message === 'string' ? { publicMessage: maskWords(message, provider) } : {}),
    },
  );
}
