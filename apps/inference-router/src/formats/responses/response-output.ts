import type { Piece } from '../../completions/piece.js';
import type { ToolCallPiece } from '../../completions/tool-call-reader.js';
import type { Finish } from '../../dialects/dialect.js';
import { CustomInput } from './custom-input.js';
import { ObjectEnd } from './object-end.js';
import { type CallItem, extend, type OutputItem } from './output-item.js';
import type { ToolName } from './responses-tools.js';

/** What an output needs to know of its request. */
export interface OutputContext {
  /** Part of the items' ids. */
  operationId: string;
  names: ReadonlyMap<string, ToolName>;
  /** Seals reasoning; null: no sealed copy is wanted. */
  seal: ((text: string) => string) | null;
}

/** Hears of the items in the order that the events of a stream have: one item after the other. */
export interface OutputListener {
  added(item: OutputItem): void;
  delta(item: OutputItem, text: string): void;
  /** Not called for a call that the ceiling cut in two: nobody may run the half of it. */
  done(item: OutputItem): void;
}

const prefixes: Readonly<Record<OutputItem['kind'], string>> = {
  reasoning: 'rs',
  message: 'msg',
  function_call: 'fc',
  custom_tool_call: 'ctc',
};

/**
 * Puts the items of a response together. Providers mix the pieces of several calls; here only the first item that is not
 * finished is told as it grows, and those behind it wait with what they have (inference-wire.md, 1.5).
 */
export class ResponseOutput {
  readonly items: OutputItem[] = [];
  /** Place of the item that is being told. */
  private head = 0;
  private isHeadAdded = false;
  private readonly calls = new Map<number, CallItem>();

  constructor(
    private readonly context: OutputContext,
    private readonly listener: OutputListener | null = null,
  ) {}

  /** Takes pieces; what came together is told together. */
  add(pieces: readonly Piece[]): void {
    for (const { reasoning, content, toolCalls } of pieces) {
      if (reasoning !== undefined) this.text('reasoning', reasoning);
      if (content !== undefined) this.text('message', content);
      for (const call of toolCalls ?? []) this.call(call);
    }
    this.tell();
  }

  /** Ends all items. */
  finish(finish: Finish): void {
    const isCut = finish === 'length' || finish === 'content_filter';
    for (const item of this.items) {
      if (item.status !== 'in_progress') continue;
      const isHalf = 'callId' in item ? !item.end.isReached : item === this.items.at(-1);
      this.complete(item, isCut && isHalf ? 'incomplete' : 'completed');
    }
    this.tell();
  }

  /** The items that are complete, or were cut. */
  ended(): OutputItem[] {
    return this.items.filter((item) => item.status !== 'in_progress');
  }

  private text(kind: 'reasoning' | 'message', text: string): void {
    const last = this.items.at(-1);
    if (last?.kind === kind) return extend(last, text);
    this.push({ kind, ...this.base(kind), text, untold: text });
  }

  private call({ index, id, function: told }: ToolCallPiece): void {
    let call = this.calls.get(index);
    if (!call) {
      // A piece of a call that has no name yet cannot be told; the reader of vendors' pieces sends the name first.
      if (told.name === undefined) return;
      call = this.newCall(id ?? `call_${index}`, told.name);
      this.calls.set(index, call);
      this.push(call);
    }
    if (!told.arguments || call.status !== 'in_progress') return;
    call.end.push(told.arguments);
    extend(call, call.input ? call.input.push(told.arguments) : told.arguments);
  }

  private newCall(callId: string, name: string): CallItem {
    const tool = this.context.names.get(name) ?? { kind: 'function', name };
    const kind = tool.kind === 'custom' ? 'custom_tool_call' : 'function_call';
    return {
      kind,
      ...this.base(kind),
      callId,
      tool,
      end: new ObjectEnd(),
      ...(tool.kind === 'custom' ? { input: new CustomInput() } : {}),
    };
  }

  private base(kind: OutputItem['kind']) {
    const index = this.items.length;
    return {
      id: `${prefixes[kind]}_${this.context.operationId}_${index}`,
      index,
      status: 'in_progress' as const,
      text: '',
      untold: '',
    };
  }

  private push(item: OutputItem): void {
    const last = this.items.at(-1);
    // Text and thoughts end where something else begins; calls may go on.
    if (last && !('callId' in last)) this.complete(last, 'completed');
    this.items.push(item);
  }

  private complete(item: OutputItem, status: 'completed' | 'incomplete'): void {
    item.status = status;
    if (item.kind === 'reasoning') {
      if (this.context.seal) item.sealed = this.context.seal(item.text);
    } else if (item.kind === 'function_call') {
      // A call without arguments.
      if (item.text === '' && status === 'completed') extend(item, '{}');
    } else if (item.kind === 'custom_tool_call') extend(item, item.input?.end() ?? '');
  }

  private tell(): void {
    for (;;) {
      const item = this.items[this.head];
      if (!item) return;
      if (!this.isHeadAdded) this.listener?.added(item);
      this.isHeadAdded = true;
      const hasNext = this.head + 1 < this.items.length;
      if (item.status === 'in_progress' && hasNext && 'callId' in item && item.end.isReached)
        this.complete(item, 'completed');
      if (item.untold !== '') this.listener?.delta(item, item.untold);
      item.untold = '';
      if (item.status === 'in_progress') return;
      if (item.status === 'completed' || !('callId' in item)) this.listener?.done(item);
      this.head += 1;
      this.isHeadAdded = false;
    }
  }
}
