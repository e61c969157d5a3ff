import { randomUUID } from 'node:crypto';
import type { Json } from '../upstreams/upstream-event.js';
import { CallIds } from './call-ids.js';
import type { OrderMessage, ToolCall } from './order.js';

/** A piece of one tool call: id, type and name come once, then pieces of the arguments. */
export interface ToolCallPiece {
  index: number;
  id?: string;
  type?: 'function';
  function: { name?: string; arguments?: string };
}

interface Call {
  index: number;
  id: string;
  /** The id that the client sees. */
  told: string;
  /** The name, once it came and the head (id, type, name) was sent. */
  name: string;
  /** Pieces of the arguments, in their order. */
  args: string[];
}

/**
 * Straightens vendors' pieces of tool calls: empty or repeated ids and names go, an index that is missing or used for
 * two calls is told apart by the id. Ids go on unchanged where the history has no such call: they come back from the client.
 */
export class ToolCallReader {
  private readonly calls: Call[] = [];
  private readonly byIndex = new Map<unknown, Call>();
  private readonly ids: CallIds;

  /** @param history what was asked */
  constructor(history: readonly OrderMessage[]) {
    this.ids = new CallIds(history);
  }

  get seen(): boolean {
    return this.calls.length > 0;
  }

  /** The calls as the client has seen them. */
  all(): ToolCall[] {
    return this.calls
      .filter(({ name }) => name !== '')
      .map(({ told, name, args }) => ({
        id: told,
        type: 'function',
        function: { name, arguments: args.join('') },
      }));
  }

  read(deltas: readonly Json[]): ToolCallPiece[] {
    return deltas.flatMap((delta, position) => this.one(delta ?? {}, position));
  }

  private one(delta: Json, position: number): ToolCallPiece[] {
    const told = (delta['function'] ?? {}) as Json;
    const id = text(delta['id']);
    const name = text(told['name']);
    const args =
      typeof told['arguments'] === 'object' && told['arguments'] !== null
        ? JSON.stringify(told['arguments'])
        : text(told['arguments']);
    const call = this.callOf(delta['index'], position, id, name);
    if (args) call.args.push(args);
    if (call.name === '' && name) {
      call.name = name;
      // A call without an id could not be answered, and clients take two calls of one id for the same.
      call.id ||= `call_${randomUUID().replaceAll('-', '')}`;
      call.told = this.ids.toldFor(call.id);
      return [{ index: call.index, id: call.told, type: 'function', function: { name, arguments: args } }];
    }
    return args ? [{ index: call.index, function: { arguments: args } }] : [];
  }

  private callOf(given: unknown, position: number, id: string, name: string): Call {
    const key =
      typeof given === 'number'
        ? given
        : id !== '' || this.calls.length === 0
          ? `position ${position}`
          : null;
    const known = key === null ? this.calls.at(-1) : this.byIndex.get(key);
    const isAnother = known !== undefined && id !== '' && name !== '' && known.id !== '' && known.id !== id;
    if (known && !isAnother) {
      known.id ||= id;
      return known;
    }
    const call: Call = { index: this.calls.length, id, told: '', name: '', args: [] };
    this.calls.push(call);
    this.byIndex.set(key, call);
    return call;
  }
}

const text = (value: unknown): string => (typeof value === 'string' ? value : '');
