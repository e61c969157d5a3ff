import type { InferenceIdentity } from '@nebo/contracts';
import { badRequest } from '@nebo/service-kit';
import type { Catalogue } from '../../catalogue/catalogue.js';
import { type CatalogueModel, type Effort, efforts } from '../../catalogue/model.js';
import type { Order, Tool } from '../../completions/order.js';
import { ceilingOf } from '../ceiling.js';
import { offerOf } from '../offer-of.js';
import { readMessages } from './chat-messages.js';

/** A chat request, checked. */
export interface ChatRequest {
  order: Order;
  /** `stream_options.include_usage` */
  includeUsage: boolean;
}

type Json = Readonly<Record<string, unknown>>;

/** Spec 8.2. */
const defaultCeiling = 4_096;

/**
 * Fields that go on to the vendor. Others are ignored, also because vendors know some that cost extra (search, service
 * tiers, predictions), which no hold has covered.
 */
const passedOn = [
  'temperature',
  'top_p',
  'top_k',
  'min_p',
  'stop',
  'seed',
  'presence_penalty',
  'frequency_penalty',
  'repetition_penalty',
  'logit_bias',
  'logprobs',
  'top_logprobs',
  'response_format',
  'parallel_tool_calls',
] as const;

/**
 * Reads the body of `POST /v1/chat/completions` in the order that the spec's refusals have.
 * @throws ApiError 400, 403, 404
 */
export function readChatRequest(body: unknown, catalogue: Catalogue, caller: InferenceIdentity): ChatRequest {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw badRequest('invalid_request', 'the body must be a JSON object');
  }
  const request = body as Json;
  const offer = offerOf(request['model'], catalogue, caller);
  const { model } = offer;
  const messages = readMessages(request['messages'], model);
  const effort = effortOf(request['reasoning_effort'], model);
  const ceilingField = given(request['max_completion_tokens']) ? 'max_completion_tokens' : 'max_tokens';
  const ceiling = ceilingOf(ceilingField, request[ceilingField], model, defaultCeiling);
  if (given(request['n']) && request['n'] !== 1)
    throw badRequest('unsupported_parameter', 'n: only one answer per request is given');
  for (const field of ['functions', 'function_call']) {
    if (given(request[field]))
      throw badRequest('unsupported_parameter', `${field}: is not supported; use tools and tool_choice`);
  }
  const { tools, choice } = readChoice(request['tool_choice'], readTools(request['tools']));
  const stream = flag(request['stream'], 'stream');
  return {
    order: {
      format: 'chat',
      offer,
      messages,
      tools,
      toolChoice: choice,
      settings: settingsOf(request, tools),
      effort,
      ceiling,
      stream,
    },
    includeUsage:
      stream &&
      flag(
        (request['stream_options'] as Json | null | undefined)?.['include_usage'],
        'stream_options.include_usage',
      ),
  };
}

const given = (value: unknown): boolean => value !== undefined && value !== null;

function flag(value: unknown, field: string): boolean {
  if (given(value) && typeof value !== 'boolean')
    throw badRequest('invalid_request', `${field}: must be true or false`);
  return value === true;
}

/** @throws ApiError 400 `invalid_reasoning_effort` (inference-wire.md, 7.1) */
function effortOf(value: unknown, model: CatalogueModel): Effort | undefined {
  // Without reasoning the field changes nothing, whatever it says.
  if (!given(value) || !model.reasoning) return undefined;
  const effort = efforts.find((one) => one === value);
  if (!effort)
    throw badRequest('invalid_reasoning_effort', `reasoning_effort: must be one of ${efforts.join(', ')}`);
  if (effort === 'none' && !model.reasoning.off) {
    throw badRequest(
      'invalid_reasoning_effort',
      `reasoning_effort: the reasoning of ${model.id} cannot be switched off; low is its shortest mode`,
    );
  }
  return effort;
}

function settingsOf(request: Json, tools: readonly Tool[]): Record<string, unknown> {
  const settings: Record<string, unknown> = {};
  for (const name of passedOn) {
    if (given(request[name])) settings[name] = request[name];
  }
  // Vendors refuse it where there is nothing to call.
  if (tools.length === 0) delete settings['parallel_tool_calls'];
  return settings;
}

/** The choice as vendors know it, and the tools that it leaves. That of a tool that was taken out goes with it. */
function readChoice(value: unknown, tools: Tool[]): { choice: unknown; tools: Tool[] } {
  if (typeof value !== 'object' || value === null) return { choice: value ?? undefined, tools };
  const { type, allowed_tools: allowed } = value as Json;
  if (type !== 'allowed_tools') return { choice: type === 'function' ? value : undefined, tools };
  const { mode, tools: named } = (typeof allowed === 'object' && allowed !== null ? allowed : {}) as Json;
  if (!Array.isArray(named))
    throw badRequest('invalid_tools', 'tool_choice.allowed_tools.tools: must be a list');
  const names = new Set(
    (named as (Json | null)[]).map((one) => (one?.['function'] as Json | null | undefined)?.['name']),
  );
  return {
    choice: mode === 'required' ? 'required' : 'auto',
    tools: tools.filter((tool) => names.has(tool.function.name)),
  };
}

/** Own functions; hosted tools of other ecosystems are taken out, as in the other formats. */
function readTools(value: unknown): Tool[] {
  if (!given(value)) return [];
  if (!Array.isArray(value)) throw badRequest('invalid_tools', 'tools: must be a list');
  const tools: Tool[] = [];
  for (const [index, tool] of (value as (Json | null)[]).entries()) {
    if (tool?.['type'] !== 'function') continue;
    const told = tool['function'] as Json | null | undefined;
    if (typeof told?.['name'] !== 'string' || told['name'] === '') {
      throw badRequest('invalid_tools', `tools.${index}.function.name: must be a string`);
    }
    const { name, description, parameters, strict } = told;
    tools.push({
      type: 'function',
      function: {
        name,
        ...(typeof description === 'string' ? { description } : {}),
        ...(given(parameters) ? { parameters } : {}),
        ...(given(strict) ? { strict } : {}),
      },
    });
  }
  return tools;
}
