import { createHash } from 'node:crypto';
import { type ApiError, badRequest } from '@nebo/service-kit';
import type { Tool } from '../../completions/order.js';

type Json = Readonly<Record<string, unknown>>;

/** A tool as the client knows it; the model knows all of them as functions with flat names. */
export interface ToolName {
  kind: 'function' | 'custom';
  name: string;
  namespace?: string;
}

/** Tools of a request, as the model gets them and as the client named them. */
export interface ReadTools {
  tools: Tool[];
  /** By the name that the model knows. */
  names: ReadonlyMap<string, ToolName>;
  /** The tools that are in use, as they came. */
  kept: Json[];
}

/** Longest name of a function that vendors take. */
const longestName = 64;
const invalid = (message: string): ApiError => badRequest('invalid_tools', message);

/**
 * The name under which the model knows a tool. One that vendors refuse, too long or with other characters, is made into one
 * that they take, the same way every time: the calls of a history must keep their names.
 */
export function flatName(namespace: string | undefined, name: string): string {
  const flat = namespace === undefined ? name : `${namespace}__${name}`;
  if (flat.length <= longestName && /^[\w-]+$/.test(flat)) return flat;
  const hash = createHash('sha256').update(flat).digest('hex').slice(0, 8);
  return `${flat.replace(/[^\w-]/g, '_').slice(0, longestName - 9)}_${hash}`;
}

/**
 * Own functions, free-input tools and namespaces of both. Hosted tools, and the search for tools that a client carries
 * out, are left out (spec, responses format, 4).
 * @throws ApiError 400 `invalid_tools` naming the tool
 */
export function readTools(value: unknown): ReadTools {
  const tools: Tool[] = [];
  const names = new Map<string, ToolName>();
  const kept: Json[] = [];
  const add = (tool: Json, at: string, namespace?: { name: string; description: string }): boolean => {
    const { type, name } = tool;
    if (type !== 'function' && type !== 'custom') return false;
    if (typeof name !== 'string' || name === '') throw invalid(`${at}.name: must be a string`);
    const flat = flatName(namespace?.name, name);
    if (names.has(flat)) throw invalid(`${at}.name: there are two tools "${flat}"`);
    names.set(flat, { kind: type, name, ...(namespace ? { namespace: namespace.name } : {}) });
    // What the namespace is for is told once, with its first tool.
    const about = namespace?.description ?? '';
    tools.push(type === 'function' ? functionOf(tool, flat, about) : freeInputOf(tool, flat, about));
    return true;
  };
  for (const [index, entry] of listOf(value, 'tools').entries()) {
    const at = `tools.${index}`;
    const tool = objectOf(entry, at);
    if (tool['type'] === 'namespace') {
      const name = tool['name'];
      if (typeof name !== 'string' || name === '') throw invalid(`${at}.name: must be a string`);
      let description = typeof tool['description'] === 'string' ? tool['description'] : '';
      let added = false;
      for (const [position, nested] of listOf(tool['tools'], `${at}.tools`).entries()) {
        const place = `${at}.tools.${position}`;
        if (!add(objectOf(nested, place), place, { name, description })) continue;
        added = true;
        description = '';
      }
      if (added) kept.push(tool);
    } else if (add(tool, at)) kept.push(tool);
  }
  return { tools, names, kept };
}

/** A choice of tools, as vendors know it. */
export interface ReadChoice {
  choice: unknown;
  /** The tools that may be called. */
  tools: Tool[];
}

/**
 * What the client says about which tool to call. A choice of a hosted tool goes with the tool.
 * @throws ApiError 400 `invalid_tool_choice`
 */
export function readToolChoice(value: unknown, { tools, names }: ReadTools): ReadChoice {
  const wrong = (why: string) => badRequest('invalid_tool_choice', `tool_choice: ${why}`);
  if (value === undefined || value === null || tools.length === 0) return { choice: undefined, tools };
  if (typeof value === 'string') {
    if (!['auto', 'none', 'required'].includes(value))
      throw wrong('must be auto, none, required or an object');
    return { choice: value, tools };
  }
  if (typeof value !== 'object') throw wrong('must be a string or an object');
  const given = value as Json;
  const nameOf = (one: Json) =>
    flatName(
      typeof one['namespace'] === 'string' ? one['namespace'] : undefined,
      typeof one['name'] === 'string' ? one['name'] : '',
    );
  switch (given['type']) {
    case 'function':
    case 'custom': {
      const name = nameOf(given);
      if (!names.has(name)) throw wrong(`there is no tool ${JSON.stringify(given['name'] ?? null)}`);
      return { choice: { type: 'function', function: { name } }, tools };
    }
    case 'allowed_tools': {
      const allowed = new Set(
        listOf(given['tools'], 'tool_choice.tools').map((one) => nameOf(objectOf(one, 'tool_choice.tools'))),
      );
      const left = tools.filter((tool) => allowed.has(tool.function.name));
      return { choice: given['mode'] === 'required' ? 'required' : 'auto', tools: left };
    }
    default:
      return { choice: undefined, tools };
  }
}

function functionOf(tool: Json, name: string, about: string): Tool {
  const { description, parameters, strict } = tool;
  const text = joined(about, description);
  return {
    type: 'function',
    function: {
      name,
      ...(text === '' ? {} : { description: text }),
      ...(parameters === undefined || parameters === null ? {} : { parameters }),
      ...(strict === undefined || strict === null ? {} : { strict }),
    },
  };
}

/** A free-input tool is offered as a function of one string; a grammar that it must follow is told in words. */
function freeInputOf(tool: Json, name: string, about: string): Tool {
  const format = (tool['format'] ?? {}) as Json;
  const grammar =
    format['type'] === 'grammar' && typeof format['definition'] === 'string'
      ? `The input must follow this ${typeof format['syntax'] === 'string' ? format['syntax'] : ''} grammar:\n${format['definition']}`
      : '';
  return {
    type: 'function',
    function: {
      name,
      description: joined(
        about,
        tool['description'],
        'The whole input is given as the one text `input`.',
        grammar,
      ),
      parameters: {
        type: 'object',
        properties: { input: { type: 'string', description: 'The whole input of the tool, as it is' } },
        required: ['input'],
        additionalProperties: false,
      },
    },
  };
}

const joined = (...texts: unknown[]): string =>
  texts.filter((text) => typeof text === 'string' && text !== '').join('\n\n');

function listOf(value: unknown, at: string): unknown[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw invalid(`${at}: must be a list`);
  return value as unknown[];
}

function objectOf(value: unknown, at: string): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalid(`${at}: must be an object`);
  return value as Json;
}
