import type { Piece } from '../../completions/piece.js';
import type { Completed } from '../../completions/completions.service.js';
import { chatUsage } from '../../dialects/counters.js';
import type { Finish } from '../../dialects/dialect.js';
import type { PlainWriter } from '../format.js';

/** What all parts of one answer repeat. */
export interface ChatHead {
  id: string;
  /** Unix seconds. */
  created: number;
  model: string;
}

/** What a call without arguments has: clients read JSON there, while some vendors write nothing at all. */
export const noArguments = '{}';

/** Are the calls of an answer that ends so as the model meant them, and not cut? */
export const isWhole = (finish: Finish): boolean => finish === 'tool_calls' || finish === 'stop';

/** Puts the pieces of a plain answer together. */
export class ChatAnswer implements PlainWriter {
  private readonly content: string[] = [];
  private readonly reasoning: string[] = [];
  private readonly calls: { id: string; type: 'function'; function: { name: string; arguments: string } }[] =
    [];
  private readonly logprobs: unknown[] = [];

  constructor(private readonly head: ChatHead) {}

  add(pieces: readonly Piece[]): void {
    for (const { content, reasoning, toolCalls, logprobs } of pieces) {
      if (content !== undefined) this.content.push(content);
      if (reasoning !== undefined) this.reasoning.push(reasoning);
      const tokens = (logprobs as { content?: unknown } | undefined)?.content;
      if (Array.isArray(tokens)) for (const token of tokens as unknown[]) this.logprobs.push(token);
      for (const piece of toolCalls ?? []) {
        const call = (this.calls[piece.index] ??= {
          id: '',
          type: 'function',
          function: { name: '', arguments: '' },
        });
        if (piece.id) call.id = piece.id;
        if (piece.function.name) call.function.name = piece.function.name;
        call.function.arguments += piece.function.arguments ?? '';
      }
    }
  }

  /** The body of the answer. */
  body({ finish, counters }: Completed) {
    const { head } = this;
    const calls = this.calls.filter((call) => call?.function.name);
    if (isWhole(finish)) for (const { function: called } of calls) called.arguments ||= noArguments;
    const content = this.content.join('');
    return {
      id: head.id,
      object: 'chat.completion',
      created: head.created,
      model: head.model,
      choices: [
        {
          index: 0,
          message: {
            role: 'assistant',
            content: content === '' && calls.length > 0 ? null : content,
            ...(this.reasoning.length > 0 ? { reasoning_content: this.reasoning.join('') } : {}),
            ...(calls.length > 0 ? { tool_calls: calls } : {}),
          },
          ...(this.logprobs.length > 0 ? { logprobs: { content: this.logprobs } } : {}),
          finish_reason: finish,
        },
      ],
      ...(counters ? { usage: chatUsage(counters) } : {}),
    };
  }
}
