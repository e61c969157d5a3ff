import type { Piece } from '../../completions/piece.js';
import type { Completed } from '../../completions/completions.service.js';
import { chatUsage } from '../../dialects/counters.js';
import type { StreamWriter } from '../format.js';
import { type ChatHead, isWhole, noArguments } from './chat-answer.js';

/**
 * Writes the chunks of a streamed answer: id, model and time equal in all, the role in the first, one reason at the end,
 * counters only when asked.
 */
export class ChatStream implements StreamWriter {
  readonly beat = ': keep-alive\n\n';
  /** What every chunk begins with, written once. */
  private readonly prefix: string;
  private hasRole = false;
  /** The calls by their places: does one have arguments? */
  private readonly calls = new Map<number, boolean>();

  constructor(
    head: ChatHead,
    private readonly includeUsage: boolean,
  ) {
    const shared = JSON.stringify({
      id: head.id,
      object: 'chat.completion.chunk',
      created: head.created,
      model: head.model,
    });
    this.prefix = `data: ${shared.slice(0, -1)},`;
  }

  pieces(pieces: readonly Piece[]): string {
    let text = '';
    for (const piece of pieces) {
      text +=
        piece.choice !== undefined && this.hasRole
          ? // The vendor's own bytes: there is nothing to write anew.
            this.framed(piece.choice)
          : this.chunk(deltaOf(piece), null, piece.logprobs);
      for (const { index, function: told } of piece.toolCalls ?? [])
        this.calls.set(index, Boolean(told.arguments) || this.calls.get(index) === true);
    }
    return text;
  }

  end({ finish, counters }: Completed): string {
    let text = '';
    if (isWhole(finish)) {
      for (const [index, hasArguments] of this.calls)
        if (!hasArguments)
          text += this.chunk({ tool_calls: [{ index, function: { arguments: noArguments } }] }, null);
    }
    text += this.chunk({}, finish);
    if (this.includeUsage && counters)
      text += `${this.prefix}"choices":[],"usage":${JSON.stringify(chatUsage(counters))}}\n\n`;
    return `${text}data: [DONE]\n\n`;
  }

  broken(body: object): string {
    return `data: ${JSON.stringify(body)}\n\n`;
  }

  private chunk(delta: Record<string, unknown>, finish: string | null, logprobs?: unknown): string {
    if (!this.hasRole) {
      this.hasRole = true;
      delta = { role: 'assistant', content: '', ...delta };
    }
    const choice = {
      index: 0,
      delta,
      ...(logprobs === undefined ? {} : { logprobs }),
      finish_reason: finish,
    };
    return this.framed(JSON.stringify(choice));
  }

  /** @param choice JSON text */
  private framed(choice: string): string {
    // Clients that asked for counters get the field in every chunk, as the format has it.
    return `${this.prefix}"choices":[${choice}]${this.includeUsage ? ',"usage":null' : ''}}\n\n`;
  }
}

function deltaOf({ content, reasoning, toolCalls }: Piece): Record<string, unknown> {
  return {
    ...(content !== undefined ? { content } : {}),
    ...(reasoning !== undefined ? { reasoning_content: reasoning } : {}),
    ...(toolCalls ? { tool_calls: toolCalls } : {}),
  };
}
