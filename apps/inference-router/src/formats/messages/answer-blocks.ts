import type { Piece } from '../../completions/piece.js';
import type { ToolCallPiece } from '../../completions/tool-call-reader.js';
import { ToolInput } from './tool-input.js';

/** Thinking or text of an answer. */
export interface TextBlock {
  kind: 'thinking' | 'text';
  text: string;
  /** The end of `text` that no delta has told yet. */
  untold: string;
}

/** A call of an answer. */
export interface CallBlock {
  kind: 'tool_use';
  id: string;
  name: string;
  input: ToolInput;
}

export type AnswerBlock = TextBlock | CallBlock;

/** Hears of the blocks in the order of a stream's events: one block after the other. */
export interface BlockListener {
  start(block: AnswerBlock, index: number): void;
  delta(block: AnswerBlock, index: number, text: string): void;
  stop(block: AnswerBlock, index: number): void;
}

/**
 * Puts the blocks of an answer together. The format has them one after the other, while providers mix the pieces of
 * parallel calls: only the first block that is not complete is told as it grows, those behind it wait with what they have
 * (inference-wire.md, 1.5). Text and thoughts are complete where something else begins, a call with its last brace, or
 * with the answer.
 */
export class AnswerBlocks {
  readonly blocks: AnswerBlock[] = [];
  private readonly calls = new Map<number, CallBlock>();
  /** Place of the block that is being told. */
  private head = 0;
  private isHeadStarted = false;

  /** @param hidesThinking the client switched it off */
  constructor(
    private readonly hidesThinking: boolean,
    private readonly listener: BlockListener | null = null,
  ) {}

  /** Takes pieces; what came together is told together. */
  add(pieces: readonly Piece[]): void {
    for (const { reasoning, content, toolCalls } of pieces) {
      if (reasoning !== undefined && !this.hidesThinking) this.text('thinking', reasoning);
      if (content !== undefined) this.text('text', content);
      for (const call of toolCalls ?? []) this.call(call);
    }
    this.tell(false);
  }

  /** Tells all that has waited. */
  end(): void {
    this.tell(true);
  }

  private text(kind: 'thinking' | 'text', text: string): void {
    const last = this.blocks.at(-1);
    if (last?.kind === kind) {
      last.text += text;
      last.untold += text;
    } else {
      this.blocks.push({ kind, text, untold: text });
    }
  }

  private call({ index, id, function: told }: ToolCallPiece): void {
    let call = this.calls.get(index);
    if (!call) {
      // Without a name there is nothing that a client could run; the reader of vendors' pieces sends it first.
      if (told.name === undefined) return;
      call = { kind: 'tool_use', id: id ?? `call_${index}`, name: told.name, input: new ToolInput() };
      this.calls.set(index, call);
      this.blocks.push(call);
    }
    if (told.arguments) call.input.push(told.arguments);
  }

  private tell(isEnd: boolean): void {
    const { listener } = this;
    if (!listener) return;
    for (;;) {
      const block = this.blocks[this.head];
      if (!block) return;
      if (!this.isHeadStarted) listener.start(block, this.head);
      this.isHeadStarted = true;
      const isCall = block.kind === 'tool_use';
      const told = isCall ? block.input.take() : block.untold;
      if (!isCall) block.untold = '';
      if (told !== '') listener.delta(block, this.head, told);
      const hasNext = this.head + 1 < this.blocks.length;
      if (!isEnd && !(hasNext && (!isCall || block.input.isWhole))) return;
      const rest = isCall ? block.input.end() : '';
      if (rest !== '') listener.delta(block, this.head, rest);
      listener.stop(block, this.head);
      this.head += 1;
      this.isHeadStarted = false;
    }
  }
}
