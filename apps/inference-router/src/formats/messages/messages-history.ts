import type { CatalogueModel } from '../../catalogue/model.js';
import type { OrderMessage, OrderPart, ToolCall } from '../../completions/order.js';
import {
  blocksOf,
  contentOf,
  invalid,
  JoinedContent,
  type Json,
  readBlock,
  stringAt,
} from './messages-blocks.js';

/** A history as an order has it. */
export interface ReadHistory {
  messages: OrderMessage[];
  /** Tools that the conversation brought in (true) or took away (false), by name; the last word counts. */
  toolChanges: ReadonlyMap<string, boolean>;
}

const roles = ['user', 'assistant', 'system'] as const;

/**
 * Reads `system` and `messages`. Blocks and vendors' messages differ in their order: the results of tools come directly
 * after their calls, each as a message, and what the user says beside them comes after; turns of one role become one.
 * @throws ApiError 400 `unsupported_content`, `invalid_messages`, naming the message
 */
export function readHistory(system: unknown, messages: unknown, model: CatalogueModel): ReadHistory {
  const history = new History(model);
  if (system !== undefined && system !== null) history.readSystem(system);
  if (!Array.isArray(messages) || messages.length === 0)
    throw invalid('messages: at least one message is needed');
  for (const [index, message] of (messages as unknown[]).entries())
    history.readMessage(message, `messages.${index}`);
  // Thoughts that led to nothing: vendors refuse an assistant's message without content and calls.
  const read = history
    .end()
    .filter(
      ({ role, content, tool_calls: calls }) => role !== 'assistant' || calls || (content ?? '').length > 0,
    );
  if (read.every(({ role }) => role === 'system'))
    throw invalid('messages: there is nothing in them that a model can read');
  return { messages: read, toolChanges: history.toolChanges };
}

/** A turn as it is read. */
interface Turn {
  role: OrderMessage['role'];
  content: JoinedContent;
  calls: ToolCall[];
  reasoning: string[];
  /** Results that stand directly behind it. */
  results: OrderMessage[];
}

/** Gathers turns in place: a client decides into how many pieces it cuts them, so nothing is copied for each. */
class History {
  private readonly turns: Turn[] = [];
  /** The last turn that is neither the user's nor the system's. */
  private lastOther: Turn | null = null;
  readonly toolChanges = new Map<string, boolean>();

  constructor(private readonly model: CatalogueModel) {}

  readSystem(system: unknown): void {
    if (typeof system !== 'string' && !Array.isArray(system))
      throw invalid('system: must be a text or a list of text blocks');
    const parts = blocksOf(system, 'system').flatMap(([block, at]) => {
      const place = at.replace('.content', '');
      if (block['type'] !== 'text') throw invalid(`${place}: only text blocks are possible here`);
      return readBlock(block, place, this.model);
    });
    this.add({ role: 'system', content: contentOf(parts) });
  }

  readMessage(value: unknown, at: string): void {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw invalid(`${at}: must be an object`);
    const { role: given, content } = value as Json;
    const role = roles.find((one) => one === given);
    if (!role) throw invalid(`${at}.role: must be one of ${roles.join(', ')}`);
    const blocks = blocksOf(content, at);
    if (role === 'assistant') this.readAssistant(blocks);
    else this.readOther(role, blocks);
  }

  private readAssistant(blocks: [Json, string][]): void {
    let text = '';
    let reasoning = '';
    const calls: ToolCall[] = [];
    for (const [block, at] of blocks) {
      switch (block['type']) {
        case 'thinking':
          // Word for word what the vendor wrote, in one piece again: so its prefix cache knows it.
          reasoning += typeof block['thinking'] === 'string' ? block['thinking'] : '';
          break;
        case 'tool_use':
          calls.push(readCall(block, at));
          break;
        case 'image':
          throw invalid(`${at}: an assistant's message holds no images`);
        case 'text':
          text += stringAt(block, 'text', at);
          break;
        case 'tool_result':
          throw invalid(`${at}: the results of tools belong into a message of the user`);
        default:
          for (const part of readBlock(block, at, this.model)) text += part.type === 'text' ? part.text : '';
      }
    }
    this.add({
      role: 'assistant',
      content: text === '' && calls.length > 0 ? null : text,
      ...(calls.length > 0 ? { tool_calls: calls } : {}),
      ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
    });
  }

  private readOther(role: 'user' | 'system', blocks: [Json, string][]): void {
    const parts: OrderPart[] = [];
    for (const [block, at] of blocks) {
      switch (block['type']) {
        case 'tool_result':
          if (role !== 'user') throw invalid(`${at}: the results of tools belong into a message of the user`);
          this.addResult(this.readResult(block, at));
          break;
        case 'tool_use':
          throw invalid(`${at}: calls of tools belong into a message of the assistant`);
        case 'tool_addition':
        case 'tool_removal':
          this.noteTool(
            (block['tool'] as Json | null | undefined)?.['name'],
            block['type'] === 'tool_addition',
          );
          break;
        default:
          parts.push(...readBlock(block, at, this.model));
      }
    }
    this.add({ role, content: contentOf(parts) });
  }

  private readResult(block: Json, at: string): OrderMessage {
    const parts: OrderPart[] = [];
    const { content } = block;
    for (const [inner, place] of content === undefined || content === null ? [] : blocksOf(content, at)) {
      if (inner['type'] === 'tool_reference') {
        const { tool_name: name } = inner;
        this.noteTool(name, true);
        if (typeof name === 'string') parts.push({ type: 'text', text: `Tool found: ${name}` });
      } else {
        parts.push(...readBlock(inner, place, this.model));
      }
    }
    return {
      role: 'tool',
      tool_call_id: stringAt(block, 'tool_use_id', at),
      content: contentOf(block['is_error'] === true ? asError(parts) : parts),
    };
  }

  private noteTool(name: unknown, isThere: boolean): void {
    if (typeof name === 'string') this.toolChanges.set(name, isThere);
  }

  /** All messages, in the order that vendors take. */
  end(): OrderMessage[] {
    // Results without a call have no message before them.
    return this.turns.flatMap((turn) =>
      turn.role === 'tool' ? turn.results : [messageOf(turn), ...turn.results],
    );
  }

  /** Adds a message; one that says nothing is left out, one of the same role as the last becomes part of it. */
  private add({ role, content, tool_calls: calls, reasoning_content: reasoning }: OrderMessage): void {
    if ((content ?? '').length === 0 && !calls && !reasoning) return;
    const last = this.turns.at(-1);
    const turn = last?.role === role && last.results.length === 0 ? last : this.begin(role);
    turn.content.add(content);
    for (const call of calls ?? []) turn.calls.push(call);
    if (reasoning) turn.reasoning.push(reasoning);
  }

  private begin(role: OrderMessage['role']): Turn {
    const turn: Turn = { role, content: new JoinedContent(), calls: [], reasoning: [], results: [] };
    this.turns.push(turn);
    if (role !== 'user' && role !== 'system') this.lastOther = turn;
    return turn;
  }

  /** Vendors take nothing between calls and their results, while clients put notes there. */
  private addResult(result: OrderMessage): void {
    const { lastOther } = this;
    const isAfterCalls = lastOther !== null && (lastOther.calls.length > 0 || lastOther.results.length > 0);
    // Without a call it stands where it came.
    const turn = isAfterCalls ? lastOther : this.begin('tool');
    turn.results.push(result);
  }
}

function messageOf({ role, content, calls, reasoning }: Turn): OrderMessage {
  const { value } = content;
  return {
    role,
    content: value === '' && calls.length > 0 ? null : value,
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(reasoning.length > 0 ? { reasoning_content: reasoning.join('\n\n') } : {}),
  };
}

function readCall(block: Json, at: string): ToolCall {
  const id = stringAt(block, 'id', at);
  const name = stringAt(block, 'name', at);
  return { id, type: 'function', function: { name, arguments: JSON.stringify(block['input'] ?? {}) } };
}

/** Vendors' tool messages have no field for it, so the text says that it is an error. */
function asError(parts: readonly OrderPart[]): OrderPart[] {
  const [first, ...others] = parts;
  if (first?.type !== 'text') return [{ type: 'text', text: 'Error' }, ...parts];
  return /^\W*\w*error/i.test(first.text)
    ? [...parts]
    : [{ type: 'text', text: `Error: ${first.text}` }, ...others];
}
