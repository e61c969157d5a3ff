/** Vendors whose habits the programmable provider has; the names are those of the router's dialects. */
export const upstreamDialects = [
  'openai',
  'zhipu',
  'moonshot',
  'qwen',
  'deepseek',
  'mimo',
  'minimax',
] as const;
export type UpstreamDialect = (typeof upstreamDialects)[number];

type Json = Readonly<Record<string, unknown>>;

/** What a vendor answers instead of a completion. */
export interface VendorRefusal {
  status: number;
  body: unknown;
}

/** How a vendor's answers look and what it does not take. Data as far as it goes. */
export interface UpstreamHabits {
  /** Where counters stand in a stream: last chunk without choices, beside the finish reason, in the choice, or growing in every chunk. */
  usageAt: 'end' | 'finish' | 'choice' | 'growing';
  /** Counters in the vendor's own shape. */
  usage(usage: Record<string, unknown>): Record<string, unknown>;
  reasoningField: 'reasoning_content' | 'reasoning';
  /** Reasoning goes into the text as `<think>` unless the request has this field set. */
  splitField?: string;
  /** How tool calls come: each in one delta, in pieces, in turns of pieces, with id and name repeated in each piece, or each whole and late unless the request has this field set. */
  calls: 'whole' | 'pieces' | 'interleaved' | 'repeated' | { wholeUnless: string };
  /** Comments between the events. */
  comment?: string;
  /** Lines end with CRLF. */
  crlf?: boolean;
  /** The stream ends without `[DONE]`. */
  withoutDone?: boolean;
  /** Fields that are in every chunk or answer. */
  extra?: Json;
  finish?: Readonly<Record<string, string>>;
  /** Fields that are refused. */
  refuses: readonly string[];
  /** `auto`: any other choice is refused; `none`: the field itself. */
  toolChoice?: 'auto' | 'none';
  /** The strongest choice of tools that is taken unless thinking is off; `always`: off changes nothing. */
  choiceWhileThinking?: { strongest: 'auto' | 'required'; always?: true };
  /**
   * Tool turns need their reasoning back unless `thinking` is disabled; `always`: that changes nothing; `answers`: beside
   * tools, all other turns need it too.
   */
  reasoningBack?: true | 'always' | 'answers';
  /** One system message at the front only. */
  systemFirst?: boolean;
  /** Links to pictures are refused. */
  picturesAsBytes?: boolean;
  /** The body and status of a refusal. */
  refusal(message: string): VendorRefusal;
}

const plainRefusal = (message: string): VendorRefusal => ({
  status: 400,
  body: { error: { message, type: 'invalid_request_error', param: null, code: 'invalid_request_error' } },
});

const sampling = ['temperature', 'top_p', 'presence_penalty', 'frequency_penalty'];

const base: UpstreamHabits = {
  usageAt: 'end',
  usage: (usage) => usage,
  reasoningField: 'reasoning_content',
  calls: 'pieces',
  refuses: [],
  refusal: plainRefusal,
};

/** The plain form without a vendor: calls go out just as the script writes them, and nothing is refused. */
export const noHabits: UpstreamHabits = { ...base, calls: 'whole' };

/** What each vendor is known for (as of November 2026; see the router's dialects). */
export const upstreamHabits: Readonly<Record<UpstreamDialect, UpstreamHabits>> = {
  openai: { ...base, reasoningField: 'reasoning', calls: 'interleaved', extra: { system_fingerprint: null } },
  zhipu: {
    ...base,
    usageAt: 'finish',
    calls: { wholeUnless: 'tool_stream' },
    finish: { content_filter: 'sensitive' },
    refuses: ['max_completion_tokens', 'parallel_tool_calls', 'logit_bias', 'logprobs', 'seed'],
    toolChoice: 'auto',
    refusal: (message) => ({ status: 400, body: { error: { code: '1210', message } } }),
  },
  moonshot: {
    ...base,
    usageAt: 'choice',
    usage: ({ prompt_tokens_details: details, ...usage }) => ({
      ...usage,
      ...(details ? { cached_tokens: (details as Json)['cached_tokens'] } : {}),
    }),
    calls: 'interleaved',
    refuses: [...sampling, 'logit_bias', 'parallel_tool_calls', 'seed'],
    choiceWhileThinking: { strongest: 'required', always: true },
    reasoningBack: 'always',
    picturesAsBytes: true,
  },
  qwen: {
    ...base,
    calls: 'repeated',
    extra: { system_fingerprint: null },
    refuses: ['logit_bias'],
    choiceWhileThinking: { strongest: 'auto' },
    systemFirst: true,
    refusal: (message) => ({
      status: 400,
      body: {
        error: {
          message: `<400> InternalError.Algo.InvalidParameter: ${message}`,
          code: 'invalid_parameter_error',
        },
      },
    }),
  },
  deepseek: {
    ...base,
    usageAt: 'finish',
    usage: (usage) => {
      const cached = Number((usage['prompt_tokens_details'] as Json | undefined)?.['cached_tokens'] ?? 0);
      return {
        ...usage,
        prompt_cache_hit_tokens: cached,
        prompt_cache_miss_tokens: Number(usage['prompt_tokens']) - cached,
      };
    },
    comment: ': keep-alive',
    refuses: ['logit_bias', 'parallel_tool_calls', 'seed'],
    choiceWhileThinking: { strongest: 'auto' },
    reasoningBack: 'answers',
  },
  mimo: {
    ...base,
    crlf: true,
    refuses: ['logit_bias', 'parallel_tool_calls'],
    reasoningBack: true,
    systemFirst: true,
  },
  minimax: {
    ...base,
    usageAt: 'growing',
    splitField: 'reasoning_split',
    calls: 'pieces',
    withoutDone: true,
    extra: { base_resp: { status_code: 0, status_msg: '' } },
    refuses: ['logit_bias', 'seed', 'parallel_tool_calls'],
    toolChoice: 'none',
    systemFirst: true,
    // Its refusals come with HTTP 200.
    refusal: (message) => ({
      status: 200,
      body: { base_resp: { status_code: 2013, status_msg: `invalid params, ${message}` }, choices: null },
    }),
  },
};

/** Does the vendor refuse the request? Null: it takes it. */
export function vendorRefusal(body: Json | null, habits: UpstreamHabits): VendorRefusal | null {
  if (body === null) return habits.refusal('the body is no JSON object');
  const reason = fieldTrouble(body, habits) ?? toolTrouble(body, habits) ?? messageTrouble(body, habits);
  return reason === null ? null : habits.refusal(reason);
}

function fieldTrouble(body: Json, { refuses }: UpstreamHabits): string | null {
  const found = refuses.find((name) => body[name] !== undefined);
  return found === undefined ? null : `${found} is not supported`;
}

const isThinkingOff = (body: Json): boolean =>
  (body['thinking'] as Json | undefined)?.['type'] === 'disabled' || body['enable_thinking'] === false;

function toolTrouble(body: Json, { toolChoice, choiceWhileThinking: rule }: UpstreamHabits): string | null {
  const { tools, tool_choice: choice } = body;
  if (Array.isArray(tools) && tools.length === 0) return 'tools must not be empty';
  if (choice === undefined) return null;
  if (tools === undefined) return 'tool_choice needs tools';
  if (toolChoice === 'none' || (toolChoice === 'auto' && choice !== 'auto'))
    return `tool_choice ${JSON.stringify(choice)} is not supported`;
  const isTaken =
    choice === 'auto' || choice === 'none' || (choice === 'required' && rule?.strongest === choice);
  if (rule && !isTaken && (rule.always || !isThinkingOff(body)))
    return 'Thinking mode does not support this tool_choice';
  return null;
}

function messageTrouble(body: Json, habits: UpstreamHabits): string | null {
  const messages = (Array.isArray(body['messages']) ? body['messages'] : []) as Json[];
  const wantsReasoning =
    habits.reasoningBack === 'always' || (habits.reasoningBack !== undefined && !isThinkingOff(body));
  const hasTools =
    body['tools'] !== undefined || messages.some((message) => message['tool_calls'] !== undefined);
  const wantsAll = habits.reasoningBack === 'answers' && wantsReasoning && hasTools;
  let open: unknown[] = [];
  for (const [index, message] of messages.entries()) {
    const { role, content } = message;
    const parts = (Array.isArray(content) ? content : []) as Json[];
    if (!['system', 'user', 'assistant', 'tool'].includes(String(role)))
      return `messages[${index}].role: unknown variant \`${String(role)}\``;
    if (habits.systemFirst && role === 'system' && index > 0)
      return 'System message must be at the beginning.';
    if (role === 'tool') {
      if (parts.some(({ type }) => type === 'image_url'))
        return `messages[${index}]: tool messages take text only`;
      if (!open.includes(message['tool_call_id'])) return `messages[${index}]: no such tool call`;
      open = open.filter((id) => id !== message['tool_call_id']);
      continue;
    }
    if (open.length > 0) return `messages[${index}]: tool calls without results: ${open.join(', ')}`;
    const calls = (message['tool_calls'] ?? []) as Json[];
    open = calls.map(({ id }) => id);
    const reasoning = message['reasoning_content'];
    const isWanted = calls.length > 0 ? wantsReasoning : role === 'assistant' && wantsAll;
    if (isWanted && (typeof reasoning !== 'string' || reasoning === ''))
      return `thinking is enabled but reasoning_content is missing in assistant tool call message at index ${index}`;
    if (habits.picturesAsBytes && parts.some(isLink)) return `messages[${index}]: unsupported image url`;
  }
  return null;
}

const isLink = (part: Json): boolean =>
  part['type'] === 'image_url' &&
  !String((part['image_url'] as Json | undefined)?.['url']).startsWith('data:');
