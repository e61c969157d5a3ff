import type { Piece } from '../../completions/piece.js';
import type { Completed } from '../../completions/completions.service.js';
import type { Counters, Finish } from '../../dialects/dialect.js';
import type { PlainWriter } from '../format.js';
import { type AnswerBlock, AnswerBlocks } from './answer-blocks.js';

/** What an answer is told by. */
export interface MessageHead {
  id: string;
  model: string;
}

/** Puts the pieces of a plain answer together. */
export class MessagesAnswer implements PlainWriter {
  private readonly blocks: AnswerBlocks;

  constructor(
    private readonly head: MessageHead,
    hidesThinking: boolean,
  ) {
    this.blocks = new AnswerBlocks(hidesThinking);
  }

  add(pieces: readonly Piece[]): void {
    this.blocks.add(pieces);
  }

  /** The message object. */
  body({ finish, counters }: Completed) {
    const { blocks } = this.blocks;
    return {
      ...messageOf(this.head),
      content: blocks.map(contentOf),
      stop_reason: stopReason(finish, blocks),
      stop_sequence: null,
      usage: usageOf(counters),
    };
  }
}

/** What a message begins with, plain and streamed. */
export const messageOf = ({ id, model }: MessageHead) => ({
  id,
  type: 'message',
  role: 'assistant',
  model,
});

function contentOf(block: AnswerBlock): object {
  switch (block.kind) {
    case 'thinking':
      // Empty, and present: clients take an answer without the member for a broken one (inference-wire.md, 1.4).
      return { type: 'thinking', thinking: block.text, signature: '' };
    case 'text':
      return { type: 'text', text: block.text };
    case 'tool_use':
      return { type: 'tool_use', id: block.id, name: block.name, input: block.input.value() };
  }
}

/** The format's word for why an answer ended. Vendors do not say which of the stop sequences it was. */
export function stopReason(finish: Finish, blocks: readonly AnswerBlock[]): string {
  switch (finish) {
    case 'length':
      return 'max_tokens';
    case 'content_filter':
      return 'refusal';
    case 'tool_calls':
      // A client that is told to run calls and finds none waits for ever.
      return blocks.some(({ kind }) => kind === 'tool_use') ? 'tool_use' : 'end_turn';
    case 'stop':
      return 'end_turn';
  }
}

/** Counters in the format's way: cache reads stand beside the input. Without counters the answer was free. */
export const usageOf = (counters: Counters | null) => ({
  input_tokens: counters ? counters.input - counters.cached : 0,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: counters?.cached ?? 0,
  output_tokens: counters?.output ?? 0,
  output_tokens_details: { thinking_tokens: counters?.reasoning ?? 0 },
});
