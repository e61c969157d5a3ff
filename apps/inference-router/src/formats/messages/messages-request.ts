import type { InferenceIdentity } from '@nebo/contracts';
import { ApiError, badRequest } from '@nebo/service-kit';
import type { Catalogue } from '../../catalogue/catalogue.js';
import type { Order } from '../../completions/order.js';
import { ceilingOf } from '../ceiling.js';
import { offerOf } from '../offer-of.js';
import type { Json } from './messages-blocks.js';
import { readHistory } from './messages-history.js';
import { readThinking } from './messages-thinking.js';
import { readTools } from './messages-tools.js';

/** A request of the messages format, checked. */
export interface MessagesRequest {
  order: Order;
  /** The client wants no thinking blocks. */
  hidesThinking: boolean;
}

/** Sampling settings that go on to the vendor under the same name. */
const passedOn = ['temperature', 'top_p', 'top_k'] as const;

/**
 * Reads the body of `POST /v1/messages` in the order that the spec's refusals have.
 * @param purpose `count`: the same checks without those of the answer; `max_tokens` may be absent
 * @throws ApiError 400, 403, 404
 */
export function readMessagesRequest(
  body: unknown,
  catalogue: Catalogue,
  caller: InferenceIdentity,
  purpose: 'answer' | 'count' = 'answer',
): MessagesRequest {
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw badRequest('invalid_request', 'the body must be a JSON object');
  const request = body as Json;
  const offer = offerOf(request['model'], catalogue, caller);
  const { model } = offer;
  refuseUnsupported(request, purpose);
  const { messages, toolChanges } = readHistory(request['system'], request['messages'], model);
  const { effort, isHidden } = readThinking(request['thinking'], request['output_config'], model);
  if (purpose === 'answer' && !given(request['max_tokens']))
    throw badRequest('max_tokens_required', 'max_tokens: the format needs an output ceiling');
  const ceiling =
    purpose === 'answer' ? ceilingOf('max_tokens', request['max_tokens'], model, model.maxOutputTokens) : 1;
  const { tools, choice, isParallel } = readTools(request['tools'], request['tool_choice'], toolChanges);
  return {
    order: {
      format: 'messages',
      offer,
      messages,
      tools,
      toolChoice: choice,
      settings: {
        ...settingsOf(request),
        // Vendors refuse it where there is nothing to call.
        ...(isParallel || tools.length === 0 ? {} : { parallel_tool_calls: false }),
      },
      effort,
      ceiling,
      stream: streamOf(request['stream']),
    },
    hidesThinking: isHidden,
  };
}

const given = (value: unknown): boolean => value !== undefined && value !== null;

/** Clients send them empty as well. */
const isEmpty = (value: unknown): boolean =>
  !given(value) || value === '' || (typeof value === 'object' && Object.keys(value!).length === 0);

/** @throws ApiError 400 `unsupported_parameter` (inference-wire.md, 7.4) */
function refuseUnsupported(request: Json, purpose: 'answer' | 'count'): void {
  if (!isEmpty(request['thread'])) {
    // The rest of the conversation would be missing. By these details the format's own client sends all of it instead.
    throw new ApiError(
      400,
      'unsupported_parameter',
      'thread: conversations are not kept here; send the whole history as messages',
      { fields: { details: { error_code: 'thread_unsupported_request', unsupported: ['thread'] } } },
    );
  }
  // It asks for a summary instead of an answer; a count ignores it.
  if (purpose === 'answer' && !isEmpty(request['compaction']))
    throw badRequest('unsupported_parameter', 'compaction: is not supported; ask for a summary as a message');
  for (const field of ['mcp_servers', 'container']) {
    if (!isEmpty(request[field]))
      throw badRequest(
        'unsupported_parameter',
        `${field}: is not supported; run it beside the model as own tools`,
      );
  }
}

function settingsOf(request: Json): Record<string, unknown> {
  const settings: Record<string, unknown> = {};
  for (const name of passedOn) if (given(request[name])) settings[name] = request[name];
  const stops = request['stop_sequences'];
  if (given(stops)) {
    if (!Array.isArray(stops) || stops.some((stop) => typeof stop !== 'string'))
      throw badRequest('invalid_request', 'stop_sequences: must be a list of strings');
    if (stops.length > 0) settings['stop'] = stops;
  }
  const format = answerFormat(request);
  if (format) settings['response_format'] = format;
  return settings;
}

/** A schema that the answer has to keep to, in the place of today's clients or in that of older ones. */
function answerFormat(request: Json): Json | undefined {
  const format =
    (request['output_config'] as Json | null | undefined)?.['format'] ?? request['output_format'];
  if (!given(format)) return undefined;
  const { type, schema } = (typeof format === 'object' ? format : {}) as Json;
  if (type !== 'json_schema' || typeof schema !== 'object' || schema === null)
    throw badRequest(
      'invalid_request',
      'output_config.format: must be of type json_schema and hold a schema',
    );
  return { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } };
}

function streamOf(value: unknown): boolean {
  if (given(value) && typeof value !== 'boolean')
    throw badRequest('invalid_request', 'stream: must be true or false');
  return value === true;
}
