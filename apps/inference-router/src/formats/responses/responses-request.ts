import type { InferenceIdentity } from '@nebo/contracts';
import { badRequest } from '@nebo/service-kit';
import type { Catalogue } from '../../catalogue/catalogue.js';
import { type CatalogueModel, type Effort, efforts } from '../../catalogue/model.js';
import type { Order } from '../../completions/order.js';
import { ceilingOf } from '../ceiling.js';
import { offerOf } from '../offer-of.js';
import { readInput } from './responses-input.js';
import { readToolChoice, readTools, type ToolName } from './responses-tools.js';

type Json = Readonly<Record<string, unknown>>;

/** A request of the responses format, checked. */
export interface ResponsesRequest {
  order: Order;
  /** The client's tools, by the names that the model knows. */
  names: ReadonlyMap<string, ToolName>;
  /** Does the client want a sealed copy of the reasoning? */
  wantsSealed: boolean;
  /** Fields of the request that its answer repeats. */
  echo: Json;
}

/** Spec, responses format, 2. */
const defaultCeiling = 32_000;
/** They would need stored responses, or state of ours. */
const unsupported = ['previous_response_id', 'conversation', 'prompt'] as const;

/**
 * Reads the body of `POST /v1/responses` in the order that the spec's refusals have.
 * @param open text of reasoning that was sealed for this caller; null when it does not open
 * @throws ApiError 400, 403, 404
 */
export function readResponsesRequest(
  body: unknown,
  catalogue: Catalogue,
  caller: InferenceIdentity,
  open: (sealed: unknown) => string | null,
): ResponsesRequest {
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw badRequest('invalid_request', 'the body must be a JSON object');
  const request = body as Json;
  const offer = offerOf(request['model'], catalogue, caller);
  const { model } = offer;
  refuseUnsupported(request);
  const messages = readInput(request['instructions'], request['input'], { model, open });
  const reasoning = objectAt(request, 'reasoning');
  const effort = effortOf(reasoning['effort'], model);
  const ceiling = ceilingOf('max_output_tokens', request['max_output_tokens'], model, defaultCeiling);
  const read = readTools(request['tools']);
  const { choice, tools } = readToolChoice(request['tool_choice'], read);
  const text = objectAt(request, 'text');
  const format = responseFormat(text['format']);
  const stream = flag(request, 'stream');
  const isParallel = flag(request, 'parallel_tool_calls');
  const store = flag(request, 'store');
  return {
    order: {
      format: 'responses',
      offer,
      messages,
      tools,
      toolChoice: choice,
      settings: {
        ...(given(request['temperature']) ? { temperature: request['temperature'] } : {}),
        ...(given(request['top_p']) ? { top_p: request['top_p'] } : {}),
        ...(format ? { response_format: format } : {}),
        // Vendors refuse it where there is nothing to call.
        ...(isParallel !== undefined && tools.length > 0 ? { parallel_tool_calls: isParallel } : {}),
      },
      effort,
      ceiling,
      stream: stream ?? false,
    },
    names: read.names,
    // Who says that nothing is to be stored keeps the reasoning himself, and some can keep only this form of it.
    wantsSealed: store === false || includes(request['include']),
    echo: {
      instructions: request['instructions'] ?? null,
      max_output_tokens: ceiling,
      metadata: objectAt(request, 'metadata'),
      parallel_tool_calls: isParallel ?? true,
      reasoning: { effort: reasoning['effort'] ?? null, summary: reasoning['summary'] ?? null },
      temperature: request['temperature'] ?? null,
      text: { ...text, format: text['format'] ?? { type: 'text' } },
      tool_choice: choice === undefined ? 'auto' : request['tool_choice'],
      tools: read.kept,
      top_p: request['top_p'] ?? null,
      truncation: 'disabled',
      ...(given(request['prompt_cache_key']) ? { prompt_cache_key: request['prompt_cache_key'] } : {}),
      ...(given(request['user']) ? { user: request['user'] } : {}),
    },
  };
}

const given = (value: unknown): boolean => value !== undefined && value !== null;

/** @throws ApiError 400 `unsupported_parameter` (inference-wire.md, 7.4) */
function refuseUnsupported(request: Json): void {
  for (const field of unsupported) {
    if (given(request[field]))
      throw badRequest(
        'unsupported_parameter',
        `${field}: is not supported, because responses are not stored; send the whole history as input`,
      );
  }
  if (flag(request, 'background'))
    throw badRequest('unsupported_parameter', 'background: is not supported; responses are not stored');
}

/**
 * Agents cannot recover from a refusal in the middle of their work, so "none" on a model that cannot be switched off is
 * its shortest mode here (inference-wire.md, 7.1).
 * @throws ApiError 400 `invalid_reasoning_effort`
 */
function effortOf(value: unknown, model: CatalogueModel): Effort | undefined {
  if (!given(value) || !model.reasoning) return undefined;
  const effort = efforts.find((one) => one === value);
  if (!effort)
    throw badRequest('invalid_reasoning_effort', `reasoning.effort: must be one of ${efforts.join(', ')}`);
  return effort === 'none' && !model.reasoning.off ? 'low' : effort;
}

/** `text.format` as vendors know it. */
function responseFormat(value: unknown): Json | undefined {
  if (!given(value)) return undefined;
  const format = (typeof value === 'object' ? value : {}) as Json;
  switch (format['type']) {
    case 'text':
      return undefined;
    case 'json_object':
      return { type: 'json_object' };
    case 'json_schema': {
      const { name, schema, strict, description } = format;
      if (typeof name !== 'string' || typeof schema !== 'object' || schema === null)
        throw badRequest('invalid_request', 'text.format: needs a name and a schema');
      return {
        type: 'json_schema',
        json_schema: {
          name,
          schema,
          ...(given(strict) ? { strict } : {}),
          ...(typeof description === 'string' ? { description } : {}),
        },
      };
    }
    default:
      throw badRequest('invalid_request', 'text.format.type: must be text, json_object or json_schema');
  }
}

const includes = (value: unknown): boolean =>
  Array.isArray(value) && value.includes('reasoning.encrypted_content');

/** A field that is an object, or absent. */
function objectAt(request: Json, field: string): Json {
  const value = request[field];
  if (!given(value)) return {};
  if (typeof value !== 'object' || Array.isArray(value))
    throw badRequest('invalid_request', `${field}: must be an object`);
  return value as Json;
}

function flag(request: Json, field: string): boolean | undefined {
  const value = request[field];
  if (!given(value)) return undefined;
  if (typeof value !== 'boolean') throw badRequest('invalid_request', `${field}: must be true or false`);
  return value;
}
