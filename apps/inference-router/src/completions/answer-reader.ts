import { readCounters } from '../dialects/counters.js';
import type { Counters, Dialect, Finish } from '../dialects/dialect.js';
import type { Json } from '../upstreams/event-stream.js';
import { UpstreamError } from '../upstreams/upstream.js';
import { ToolCallReader, type ToolCallPiece } from './tool-call-reader.js';

/** A piece of an answer, free of the vendor's habits. */
export interface Piece {
  content?: string;
  reasoning?: string;
  toolCalls?: ToolCallPiece[];
  /** As the vendor gives it, where the client asked for it. */
  logprobs?: unknown;
}

const finishes: Readonly<Record<string, Finish>> = {
  stop: 'stop',
  length: 'length',
  max_tokens: 'length',
  tool_calls: 'tool_calls',
  function_call: 'tool_calls',
  content_filter: 'content_filter',
};

/** Reads the chunks of one answer: pieces go on, the finish reason and the counters stay until the end. */
export class AnswerReader {
  finish: Finish | null = null;
  /** The newest counters. Growing ones replace each other; they are never summed. */
  counters: Counters | null = null;
  private readonly calls = new ToolCallReader();
  private readonly reasoning: string[] = [];

  /** @param hideReasoning the client switched reasoning off, whatever the vendor made of it */
  constructor(
    private readonly dialect: Dialect,
    private readonly hideReasoning: boolean,
  ) {}

  /** @throws UpstreamError when the chunk is an error instead of a piece of the answer */
  read(chunk: Json): Piece | null {
    checkChunk(chunk, this.dialect);
    this.counters = readCounters(chunk) ?? this.counters;
    const choices = chunk['choices'];
    const choice = Array.isArray(choices)
      ? (choices as Json[]).find((one) => (one['index'] ?? 0) === 0)
      : undefined;
    if (!choice) return null;
    const piece = this.pieceOf((choice['delta'] ?? {}) as Json);
    if (choice['logprobs'] != null && piece) piece.logprobs = choice['logprobs'];
    const reason = choice['finish_reason'];
    if (typeof reason === 'string' && reason !== '') this.finish = this.finishOf(reason);
    return piece;
  }

  /** Ids of the tool calls of the answer. */
  callIds(): string[] {
    return this.calls.ids();
  }

  /** All reasoning, hidden or not. */
  reasoningText(): string {
    return this.reasoning.join('');
  }

  private pieceOf(delta: Json): Piece | null {
    const piece: Piece = {};
    if (isText(delta['content'])) piece.content = delta['content'];
    // `reasoning` is what some servers call it.
    const reasoning = delta['reasoning_content'] ?? delta['reasoning'];
    if (isText(reasoning)) {
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
    const finish = this.dialect.finish?.[reason] ?? finishes[reason] ?? 'stop';
    if (finish === 'broken') throw new UpstreamError('broken', `the vendor gave up: ${reason}`);
    // Agents run the calls of an answer only when the reason says so.
    return finish === 'stop' && this.calls.seen ? 'tool_calls' : finish;
  }
}

const isText = (value: unknown): value is string => typeof value === 'string' && value !== '';

/** @throws UpstreamError when a chunk is the vendor's error, inside an answer that began with 200 */
export function checkChunk(chunk: Json, dialect: Dialect): void {
  const failure = dialect.failure?.(chunk);
  if (failure) {
    throw new UpstreamError('refused', `an error inside a successful answer: ${failure.message}`, {
      status: failure.status,
      publicMessage: failure.message.slice(0, 500),
    });
  }
  const error = chunk['error'];
  if (error === undefined || error === null) return;
  const { code, status, message } = (typeof error === 'object' ? error : { message: error }) as Json;
  const number = [status, code].find(
    (value): value is number => typeof value === 'number' && value >= 400 && value < 600,
  );
  throw new UpstreamError(
    'refused',
    `an error inside a successful answer: ${JSON.stringify(error).slice(0, 500)}`,
    {
      status: number ?? 502,
      ...(typeof message === 'string' ? { publicMessage: message.slice(0, 500) } : {}),
    },
  );
}
