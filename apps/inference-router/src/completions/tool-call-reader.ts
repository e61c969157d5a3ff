import type { Json } from '../upstreams/upstream-event.js';

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
  /** Was the head (id, type, name) sent? */
  named: boolean;
}

/**
 * Straightens vendors' pieces of tool calls: empty or repeated ids and names go, an index that is missing or used for
 * two calls is told apart by the id. Ids go on unchanged: they come back from the client.
 */
export class ToolCallReader {
  private readonly calls: Call[] = [];
  private readonly byIndex = new Map<unknown, Call>();

  get seen(): boolean {
    return this.calls.length > 0;
  }

  /** Ids as the client sees them. */
  ids(): string[] {
    return this.calls.filter((call) => call.named).map((call) => call.id);
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
    if (!call.named && name) {
      call.named = true;
      // A call without an id could not be answered.
      call.id ||= `call_${call.index}`;
      return [{ index: call.index, id: call.id, type: 'function', function: { name, arguments: args } }];
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
    const call: Call = { index: this.calls.length, id, named: false };
    this.calls.push(call);
    this.byIndex.set(key, call);
    return call;
  }
}

const text = (value: unknown): string => (typeof value === 'string' ? value : '');
