import { type ApiError, badRequest } from '@nebo/service-kit';
import type { CatalogueModel } from '../../catalogue/model.js';
import type { OrderMessage, OrderPart, ToolCall } from '../../completions/order.js';
import { callArguments } from '../call-arguments.js';
import { flatName } from './responses-tools.js';
import { readParts } from './responses-parts.js';

type Json = Readonly<Record<string, unknown>>;

/** What reading a history needs to know. */
export interface InputContext {
  model: CatalogueModel;
  /** The text of our own sealed reasoning; null when it does not open. */
  open(sealed: unknown): string | null;
}

const invalid = (message: string): ApiError => badRequest('invalid_input', message);
const roles: Readonly<Record<string, 'system' | 'user' | 'assistant'>> = {
  system: 'system',
  // Vendors know no such role.
  developer: 'system',
  user: 'user',
  assistant: 'assistant',
};

/**
 * Reads `instructions` and `input` as the messages of an order. Item ids mean nothing here: nothing is stored.
 * @throws ApiError 400 `invalid_input`, `unsupported_content`, `unsupported_parameter`, naming the item
 */
export function readInput(instructions: unknown, input: unknown, context: InputContext): OrderMessage[] {
  const history = new History();
  if (instructions !== undefined && instructions !== null) {
    if (typeof instructions !== 'string') throw invalid('instructions: must be a string');
    if (instructions !== '') history.add({ role: 'system', content: instructions });
  }
  if (typeof input === 'string') history.add({ role: 'user', content: input });
  else if (!Array.isArray(input) || input.length === 0)
    throw invalid('input: a text or at least one item is needed');
  else
    for (const [index, item] of (input as unknown[]).entries())
      readItem(item, `input.${index}`, context, history);
  const messages = history.end();
  if (messages.length === 0) throw invalid('input: there is nothing in it that a model can read');
  return messages;
}

/**
 * Gathers messages. What an assistant thought, said and called in one turn comes as items one after another, and vendors
 * want it as one message with all its calls before the results (inference-wire.md, 3).
 */
class History {
  /** Messages, each with the results of its calls. */
  private readonly entries: { message: OrderMessage; results: OrderMessage[] }[] = [];
  private readonly resultsOf = new Map<string, OrderMessage[]>();
  private turn: { reasoning: string[]; texts: string[]; calls: ToolCall[] } | null = null;

  /** The assistant's turn that is being read. */
  assistant() {
    return (this.turn ??= { reasoning: [], texts: [], calls: [] });
  }

  add(message: OrderMessage): void {
    this.close();
    this.entries.push({ message, results: [] });
  }

  /** Adds a call's result: behind its call whatever came in between, since vendors take nothing else there. */
  addResult(id: string, content: OrderMessage['content']): void {
    this.close();
    const message: OrderMessage = { role: 'tool', tool_call_id: id, content };
    const results = this.resultsOf.get(id);
    if (results) results.push(message);
    else this.add(message);
  }

  end(): OrderMessage[] {
    this.close();
    return this.entries.flatMap(({ message, results }) => [message, ...results]);
  }

  private close(): void {
    const { turn } = this;
    this.turn = null;
    // Thoughts that led to nothing: an assistant's message without content and calls is refused by vendors.
    if (!turn || (turn.texts.length === 0 && turn.calls.length === 0)) return;
    const results: OrderMessage[] = [];
    for (const { id } of turn.calls) this.resultsOf.set(id, results);
    const message: OrderMessage = {
      role: 'assistant',
      content: turn.texts.length > 0 ? turn.texts.join('\n\n') : null,
      ...(turn.calls.length > 0 ? { tool_calls: turn.calls } : {}),
      ...(turn.reasoning.length > 0 ? { reasoning_content: turn.reasoning.join('\n\n') } : {}),
    };
    this.entries.push({ message, results });
  }
}

function readItem(value: unknown, at: string, context: InputContext, history: History): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalid(`${at}: must be an object`);
  const item = value as Json;
  switch (item['type'] ?? (item['role'] === undefined ? undefined : 'message')) {
    case 'message':
      return readMessage(item, at, context, history);
    case 'reasoning': {
      const text = reasoningOf(item, context);
      if (text !== '') history.assistant().reasoning.push(text);
      return;
    }
    case 'function_call':
    case 'custom_tool_call':
      history.assistant().calls.push(readCall(item, at));
      return;
    case 'function_call_output':
    case 'custom_tool_call_output':
      return history.addResult(idOf(item, at), readOutput(item['output'], at, context));
    case 'item_reference':
      throw badRequest(
        'unsupported_parameter',
        `${at}: responses are not stored, so items cannot be referred to; send whole items, with store: false`,
      );
    case 'input_file':
    case 'input_audio':
      throw badRequest(
        'unsupported_content',
        `${at}: ${String(item['type'])} is not supported; text and images are`,
      );
    default:
      if (typeof item['type'] !== 'string') throw invalid(`${at}.type: must be a string`);
      if (/^(input|output)_/.test(item['type']))
        throw invalid(`${at}: content of type ${item['type']} belongs into a message`);
    // What hosted tools left behind in a history says nothing to a model that has no such tools.
  }
}

function readMessage(item: Json, at: string, context: InputContext, history: History): void {
  const role =
    typeof item['role'] === 'string' && Object.hasOwn(roles, item['role']) ? roles[item['role']] : undefined;
  if (!role) throw invalid(`${at}.role: must be one of ${Object.keys(roles).join(', ')}`);
  const content = readParts(item['content'], `${at}.content`, context.model);
  if (role !== 'assistant') return history.add({ role, content });
  if (typeof content !== 'string')
    throw badRequest('unsupported_content', `${at}: an assistant's message holds text only`);
  // An empty turn ends what came before it, and says nothing.
  if (content !== '') history.assistant().texts.push(content);
}

/** The sealed copy counts first: it is what the model wrote, and clients may cut the summary that they show. */
function reasoningOf(item: Json, { open }: InputContext): string {
  return open(item['encrypted_content']) ?? (textsOf(item['summary']) || textsOf(item['content']));
}

function textsOf(parts: unknown): string {
  if (!Array.isArray(parts)) return '';
  return (parts as (Json | null)[])
    .map((part) => part?.['text'])
    .filter((text) => typeof text === 'string' && text !== '')
    .join('\n\n');
}

function readCall(item: Json, at: string): ToolCall {
  const { name, namespace } = item;
  if (typeof name !== 'string' || name === '') throw invalid(`${at}.name: must be a string`);
  const id = idOf(item, at);
  const flat = flatName(typeof namespace === 'string' && namespace !== '' ? namespace : undefined, name);
  return { id, type: 'function', function: { name: flat, arguments: argumentsOf(item) } };
}

const argumentsOf = (item: Json): string =>
  item['type'] === 'custom_tool_call'
    ? JSON.stringify({ input: textOf(item['input']) })
    : callArguments(item['arguments']);

function readOutput(output: unknown, at: string, { model }: InputContext): string | readonly OrderPart[] {
  return Array.isArray(output) ? readParts(output, `${at}.output`, model) : textOf(output);
}

function idOf(item: Json, at: string): string {
  const id = item['call_id'];
  if (typeof id !== 'string' || id === '') throw invalid(`${at}.call_id: must be a string`);
  return id;
}

const textOf = (value: unknown): string =>
  typeof value === 'string' ? value : value === undefined || value === null ? '' : JSON.stringify(value);
