import { type ApiError, badRequest } from '@nebo/service-kit';
import type { Tool } from '../../completions/order.js';
import type { Json } from './messages-blocks.js';

/** Tools and their choice, as an order has them. */
export interface ReadTools {
  tools: Tool[];
  /** Undefined: nothing is said, or nothing is left to choose from. */
  choice: unknown;
  /** False: the client runs one call at a time. */
  isParallel: boolean;
}

const invalid = (message: string): ApiError => badRequest('invalid_tools', message);

/**
 * Own tools as functions. Tools without a schema of their own (web search, code execution, editors and shells that the
 * model of that ecosystem was taught) are taken out and the model does not see them (spec 4, messages, 3); so are those
 * that wait until a search finds them. A choice that nothing is left for goes too (inference-wire.md, 2).
 * @param changes tools that the conversation brought in or took away
 * @throws ApiError 400 `invalid_tools`
 */
export function readTools(given: unknown, choice: unknown, changes: ReadonlyMap<string, boolean>): ReadTools {
  const all = listOf(given);
  const tools: Tool[] = [];
  for (const [index, tool] of all.entries()) {
    const own = readTool(tool, `tools.${index}`);
    if (own && (changes.get(own.function.name) ?? tool['defer_loading'] !== true)) tools.push(own);
  }
  const told = readChoice(choice, all, tools);
  return {
    tools,
    choice: tools.length > 0 ? told : undefined,
    isParallel: (choice as Json | null | undefined)?.['disable_parallel_tool_use'] !== true,
  };
}

function listOf(given: unknown): Json[] {
  if (given === undefined || given === null) return [];
  if (!Array.isArray(given)) throw invalid('tools: must be a list');
  return (given as unknown[]).map((tool, index) => {
    if (typeof tool !== 'object' || tool === null || Array.isArray(tool))
      throw invalid(`tools.${index}: must be an object`);
    return tool as Json;
  });
}

/** Null: not one that the client runs by its schema. */
function readTool(tool: Json, at: string): Tool | null {
  const { type, name, description, input_schema: schema } = tool;
  const hasSchema = typeof schema === 'object' && schema !== null;
  const isOwn = type === undefined || type === null || type === 'custom';
  if (!isOwn && !hasSchema) return null;
  if (typeof name !== 'string' || name === '') throw invalid(`${at}.name: must be a string`);
  if (!hasSchema) throw invalid(`${at}.input_schema: must be a JSON schema`);
  return {
    type: 'function',
    function: { name, ...(typeof description === 'string' ? { description } : {}), parameters: schema },
  };
}

function readChoice(value: unknown, all: readonly Json[], tools: readonly Tool[]): unknown {
  if (value === undefined || value === null) return undefined;
  const { type, name } = (typeof value === 'object' ? value : {}) as Json;
  switch (type) {
    case 'auto':
    case 'none':
      return type;
    case 'any':
      return 'required';
    case 'tool':
      if (tools.some((tool) => tool.function.name === name)) return { type: 'function', function: { name } };
      if (all.some((tool) => tool['name'] === name)) return undefined;
      throw invalid(`tool_choice.name: there is no tool ${JSON.stringify(name ?? null)}`);
    default:
      throw invalid('tool_choice.type: must be one of auto, any, tool, none');
  }
}
