import type { OrderMessage, Tool } from '../completions/order.js';
import { lastUserText } from './simulated-text.js';

/** A call that the simulator makes. */
export interface SimulatedCall {
  name: string;
  arguments: unknown;
}

/**
 * The tool that the request asks for: the forced one, or the one that the user's last message names, or the first when
 * the message speaks of calling or using a tool. Null: answer with text; so too once a tool has answered.
 */
export function wantedTool(
  messages: readonly OrderMessage[],
  tools: readonly Tool[],
  choice: unknown,
): SimulatedCall | null {
  if (tools.length === 0 || choice === 'none' || messages.at(-1)?.role !== 'user') return null;
  const forced = (choice as { function?: { name?: unknown } } | undefined)?.function?.name;
  const text = lastUserText(messages).toLowerCase();
  const tool =
    tools.find(({ function: { name } }) => name === forced) ??
    tools.find(({ function: { name } }) => text.includes(name.toLowerCase())) ??
    (choice === 'required' || /\b(call|use|invoke)\b.*\b(tool|function)s?\b|вызови|используй/u.test(text)
      ? tools[0]
      : undefined);
  return tool ? { name: tool.function.name, arguments: sample(tool.function.parameters, 0) } : null;
}

/** A value that fits a JSON schema as far as its simple parts tell. */
function sample(schema: unknown, depth: number): unknown {
  const {
    type,
    enum: values,
    properties,
    required,
    const: fixed,
  } = (schema ?? {}) as Record<string, unknown>;
  if (fixed !== undefined) return fixed;
  if (Array.isArray(values) && values.length > 0) return values[0];
  switch (Array.isArray(type) ? type[0] : (type ?? 'object')) {
    case 'string':
      return 'example';
    case 'integer':
    case 'number':
      return 1;
    case 'boolean':
      return true;
    case 'array':
      return [];
    case 'null':
      return null;
    default: {
      const fields = (properties ?? {}) as Record<string, unknown>;
      const names = Array.isArray(required) ? (required as string[]) : Object.keys(fields);
      return depth > 4
        ? {}
        : Object.fromEntries(names.map((name) => [name, sample(fields[name], depth + 1)]));
    }
  }
}
