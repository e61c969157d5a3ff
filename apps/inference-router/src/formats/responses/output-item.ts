import { CustomInput } from './custom-input.js';
import type { ObjectEnd } from './object-end.js';
import type { ToolName } from './responses-tools.js';

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

interface ItemBase {
  id: string;
  /** Its place in the output. */
  index: number;
  status: ItemStatus;
  /** Everything so far: text, summary, arguments, or input of a free-input tool. */
  text: string;
  /** The end of `text` that no delta has told yet. */
  untold: string;
}

export interface ReasoningItem extends ItemBase {
  kind: 'reasoning';
  /** Our sealed copy, once it is complete and wanted. */
  sealed?: string;
}

export interface MessageItem extends ItemBase {
  kind: 'message';
}

export interface CallItem extends ItemBase {
  kind: 'function_call' | 'custom_tool_call';
  callId: string;
  tool: ToolName;
  /** Watches for the end of the arguments, after which nothing can follow. */
  end: ObjectEnd;
  /** Of free-input tools. */
  input?: CustomInput;
}

/** One item of a response's output. */
export type OutputItem = ReasoningItem | MessageItem | CallItem;

/** Adds text to an item. */
export function extend(item: OutputItem, text: string): void {
  item.text += text;
  item.untold += text;
}

/** An item as it stands when it is added to the output: without content. */
export function emptyItem(item: OutputItem): object {
  switch (item.kind) {
    case 'reasoning':
      return { id: item.id, type: 'reasoning', summary: [] };
    case 'message':
      return { id: item.id, type: 'message', role: 'assistant', status: 'in_progress', content: [] };
    default:
      return callOf(item, '', 'in_progress');
  }
}

/** An item with all that it holds. */
export function wholeItem(item: OutputItem): object {
  switch (item.kind) {
    case 'reasoning':
      return {
        id: item.id,
        type: 'reasoning',
        summary: [{ type: 'summary_text', text: item.text }],
        ...(item.sealed === undefined ? {} : { encrypted_content: item.sealed }),
      };
    case 'message':
      return {
        id: item.id,
        type: 'message',
        role: 'assistant',
        status: item.status,
        content: [textPart(item.text)],
      };
    default:
      return callOf(item, item.text, item.status);
  }
}

export const textPart = (text: string) => ({ type: 'output_text', text, annotations: [], logprobs: [] });

function callOf(item: CallItem, text: string, status: ItemStatus): object {
  const { name, namespace } = item.tool;
  return {
    id: item.id,
    type: item.kind,
    status,
    call_id: item.callId,
    name,
    ...(namespace === undefined ? {} : { namespace }),
    ...(item.kind === 'function_call' ? { arguments: text } : { input: text }),
  };
}
