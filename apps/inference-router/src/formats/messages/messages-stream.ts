import type { Piece } from '../../completions/piece.js';
import type { Completed } from '../../completions/completions.service.js';
import type { StreamWriter } from '../format.js';
import { type AnswerBlock, AnswerBlocks, type BlockListener } from './answer-blocks.js';
import { type MessageHead, messageOf, stopReason, usageOf } from './messages-answer.js';

/**
 * Writes the events of a streamed message: its start with an estimate of the input, blocks one after the other, then one
 * delta with reason and counters, and the end (inference-wire.md, 2 and 4).
 */
export class MessagesStream implements StreamWriter, BlockListener {
  readonly beat = eventOf({ type: 'ping' });
  private readonly blocks: AnswerBlocks;
  private hasStarted = false;
  private text = '';

  /** @param estimate tokens of the input, nearly: some clients count with those of the start only */
  constructor(
    private readonly head: MessageHead,
    private readonly estimate: number,
    hidesThinking: boolean,
  ) {
    this.blocks = new AnswerBlocks(hidesThinking, this);
  }

  pieces(pieces: readonly Piece[]): string {
    this.begin();
    this.blocks.add(pieces);
    return this.taken();
  }

  end({ finish, counters }: Completed): string {
    this.begin();
    this.blocks.end();
    const reason = stopReason(finish, this.blocks.blocks);
    this.text += eventOf({
      type: 'message_delta',
      delta: { stop_reason: reason, stop_sequence: null },
      usage: usageOf(counters),
    });
    this.text += eventOf({ type: 'message_stop' });
    return this.taken();
  }

  broken(body: object): string {
    return eventOf({ type: 'error', ...body });
  }

  start(block: AnswerBlock, index: number): void {
    this.text += eventOf({ type: 'content_block_start', index, content_block: emptyOf(block) });
  }

  delta(block: AnswerBlock, index: number, text: string): void {
    this.text += deltaEvent(index, deltaHeads[block.kind], text);
  }

  stop(block: AnswerBlock, index: number): void {
    // Without it one client drops the thinking from its next request (inference-wire.md, 1.4).
    if (block.kind === 'thinking') this.text += deltaEvent(index, '"signature_delta","signature":', '');
    this.text += eventOf({ type: 'content_block_stop', index });
  }

  private begin(): void {
    if (this.hasStarted) return;
    this.hasStarted = true;
    this.text += eventOf({
      type: 'message_start',
      message: {
        ...messageOf(this.head),
        content: [],
        stop_reason: null,
        stop_sequence: null,
        // No output yet: some clients add these to those of the end.
        usage: { ...usageOf(null), input_tokens: this.estimate },
      },
    });
  }

  private taken(): string {
    const { text } = this;
    this.text = '';
    return text;
  }
}

const deltaHeads: Readonly<Record<AnswerBlock['kind'], string>> = {
  thinking: '"thinking_delta","thinking":',
  text: '"text_delta","text":',
  tool_use: '"input_json_delta","partial_json":',
};

function emptyOf(block: AnswerBlock): object {
  switch (block.kind) {
    case 'thinking':
      return { type: 'thinking', thinking: '', signature: '' };
    case 'text':
      return { type: 'text', text: '' };
    case 'tool_use':
      return { type: 'tool_use', id: block.id, name: block.name, input: {} };
  }
}

/** Written by hand: there is one for nearly every token. */
const deltaEvent = (index: number, head: string, text: string): string =>
  `event: content_block_delta\ndata: {"type":"content_block_delta","index":${index},"delta":{"type":${head}${JSON.stringify(text)}}}\n\n`;

/** An event, named like its `type`: clients read one or the other. */
function eventOf(data: { type: string; [field: string]: unknown }): string {
  return `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
}
