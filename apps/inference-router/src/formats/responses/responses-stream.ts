import type { Piece } from '../../completions/piece.js';
import type { Completed } from '../../completions/completions.service.js';
import type { StreamWriter } from '../format.js';
import { emptyItem, type OutputItem, textPart, wholeItem } from './output-item.js';
import { begun, ended, failed, type ResponseHead } from './response-object.js';
import { type OutputContext, type OutputListener, ResponseOutput } from './response-output.js';

/**
 * Writes the events of a streamed response, in the order that clients need (inference-wire.md, 3): every line has its type
 * and a rising number, nothing is told of an item before it was added, and the last event has the whole output.
 */
export class ResponsesStream implements StreamWriter, OutputListener {
  readonly beat = ': keep-alive\n\n';
  private readonly output: ResponseOutput;
  private number = 0;
  /** Events that are not sent yet. */
  private text = '';

  constructor(
    private readonly head: ResponseHead,
    context: OutputContext,
  ) {
    this.output = new ResponseOutput(context, this);
  }

  pieces(pieces: readonly Piece[]): string {
    this.begin();
    this.output.add(pieces);
    return this.take();
  }

  end(completed: Completed): string {
    this.begin();
    this.output.finish(completed.finish);
    const response = ended(this.head, this.output.items, completed);
    this.event(`response.${response.status}`, { response });
    return this.take();
  }

  broken(body: object): string {
    this.begin();
    this.event('response.failed', { response: failed(this.head, this.output.ended(), body) });
    return this.take();
  }

  added(item: OutputItem): void {
    this.event('response.output_item.added', { output_index: item.index, item: emptyItem(item) });
    const place = { item_id: item.id, output_index: item.index };
    if (item.kind === 'reasoning')
      this.event('response.reasoning_summary_part.added', {
        ...place,
        summary_index: 0,
        part: { type: 'summary_text', text: '' },
      });
    if (item.kind === 'message')
      this.event('response.content_part.added', { ...place, content_index: 0, part: textPart('') });
  }

  delta(item: OutputItem, delta: string): void {
    const place = { item_id: item.id, output_index: item.index };
    switch (item.kind) {
      case 'reasoning':
        return this.event('response.reasoning_summary_text.delta', { ...place, summary_index: 0, delta });
      case 'message':
        return this.event('response.output_text.delta', { ...place, content_index: 0, delta, logprobs: [] });
      case 'function_call':
        return this.event('response.function_call_arguments.delta', { ...place, delta });
      case 'custom_tool_call':
        return this.event('response.custom_tool_call_input.delta', { ...place, delta });
    }
  }

  done(item: OutputItem): void {
    const { text } = item;
    const place = { item_id: item.id, output_index: item.index };
    if (item.kind === 'reasoning') {
      this.event('response.reasoning_summary_text.done', { ...place, summary_index: 0, text });
      const part = { type: 'summary_text', text };
      this.event('response.reasoning_summary_part.done', { ...place, summary_index: 0, part });
    } else if (item.kind === 'message') {
      this.event('response.output_text.done', { ...place, content_index: 0, text, logprobs: [] });
      this.event('response.content_part.done', { ...place, content_index: 0, part: textPart(text) });
    } else if (item.kind === 'function_call') {
      const { name } = item.tool;
      this.event('response.function_call_arguments.done', { ...place, name, arguments: text });
    } else this.event('response.custom_tool_call_input.done', { ...place, input: text });
    this.event('response.output_item.done', { output_index: item.index, item: wholeItem(item) });
  }

  private begin(): void {
    if (this.number > 0) return;
    const response = begun(this.head);
    this.event('response.created', { response });
    this.event('response.in_progress', { response });
  }

  private event(type: string, fields: object): void {
    this.text += `event: ${type}\ndata: ${JSON.stringify({ type, sequence_number: this.number++, ...fields })}\n\n`;
  }

  private take(): string {
    const { text } = this;
    this.text = '';
    return text;
  }
}
