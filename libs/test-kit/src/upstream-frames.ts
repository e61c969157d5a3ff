import type { UpstreamAnswer, UpstreamRequest, UpstreamUsage } from './upstream.js';
import type { UpstreamHabits } from './upstream-habits.js';

type Json = Record<string, unknown>;

/** What of a request an answer repeats or depends on. */
export type AnsweredRequest = Pick<UpstreamRequest, 'number' | 'at' | 'body'>;

/** Everything of an answer, with the defaults filled in. */
interface WholeAnswer {
  chunks: readonly string[];
  reasoning: readonly string[];
  usage: UpstreamUsage | null;
  finish: string;
  head: { id: string; created: number; model: string };
}

function whole(answer: UpstreamAnswer, seen: AnsweredRequest): WholeAnswer {
  const chunks =
    answer.chunks ??
    // Calls stand alone unless the script gives text as well.
    (answer.toolCalls === undefined ? ['Hello', ' from', ' the', ' upstream', '.'] : []);
  const reasoning = answer.reasoning ?? [];
  const prompt = Math.max(1, Math.ceil(JSON.stringify(seen.body?.['messages'] ?? '').length / 4));
  const completion = (answer.chunks?.length ?? 5) + reasoning.length;
  return {
    chunks,
    reasoning,
    usage:
      answer.usage === undefined
        ? { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion }
        : answer.usage,
    finish: answer.finishReason ?? (answer.toolCalls === undefined ? 'stop' : 'tool_calls'),
    head: {
      id: `chatcmpl-${seen.number}`,
      created: Math.floor(seen.at / 1000),
      model: typeof seen.body?.['model'] === 'string' ? seen.body['model'] : 'test-model',
    },
  };
}

const isOn = (seen: AnsweredRequest, field: string): boolean => seen.body?.[field] === true;

/** The body of a plain answer in the vendor's shape. */
export function plainBody(answer: UpstreamAnswer, seen: AnsweredRequest, habits: UpstreamHabits): Json {
  const { chunks, reasoning, usage, finish, head } = whole(answer, seen);
  const isInText = habits.splitField !== undefined && !isOn(seen, habits.splitField) && reasoning.length > 0;
  const text = isInText ? `<think>${reasoning.join('')}</think>\n\n${chunks.join('')}` : chunks.join('');
  const message = {
    role: 'assistant',
    content: answer.toolCalls !== undefined && answer.chunks === undefined ? null : text,
    ...(reasoning.length > 0 && !isInText ? { [habits.reasoningField]: reasoning.join('') } : {}),
    ...(answer.toolCalls !== undefined ? { tool_calls: answer.toolCalls } : {}),
  };
  return {
    ...head,
    object: 'chat.completion',
    choices: [{ index: 0, message, finish_reason: habits.finish?.[finish] ?? finish }],
    ...(usage === null ? {} : { usage: habits.usage(usage) }),
    ...habits.extra,
  };
}

/** The events of a streamed answer in the vendor's shape: the opening one, those with content, and those that end it. */
export interface Frames {
  opening: string;
  body: string[];
  ending: string[];
}

/** The stream of an answer as a vendor would send it; counters only when the request or the script asks for them. */
export function framesOf(answer: UpstreamAnswer, seen: AnsweredRequest, habits: UpstreamHabits): Frames {
  const { chunks, reasoning, usage, finish, head } = whole(answer, seen);
  const options = seen.body?.['stream_options'] as { include_usage?: boolean } | undefined;
  const isAsked = options?.include_usage === true;
  const shown =
    usage === null || answer.usageChunk === 'never' || (answer.usageChunk !== 'always' && !isAsked)
      ? null
      : usage;
  const line = habits.crlf ? '\r\n' : '\n';
  let sent = 0;
  const event = (choices: Json[], more: Json = {}): string => {
    const chunk = { ...head, object: 'chat.completion.chunk', choices, ...more, ...habits.extra };
    return `data: ${JSON.stringify(chunk)}${line}${line}`;
  };
  const delta = (value: Json, reason: string | null = null): string => {
    const choice: Json = { index: 0, delta: value, finish_reason: reason };
    if (shown === null) return event([choice]);
    if (habits.usageAt === 'growing') {
      const counted = { ...shown, completion_tokens: Math.min(sent++, shown.completion_tokens) };
      return event([choice], { usage: habits.usage(reason === null ? counted : shown) });
    }
    if (reason === null) return event([choice]);
    if (habits.usageAt === 'finish') return event([choice], { usage: habits.usage(shown) });
    if (habits.usageAt === 'choice') return event([{ ...choice, usage: habits.usage(shown) }]);
    return event([choice]);
  };
  const comment = habits.comment === undefined ? '' : `${habits.comment}${line}${line}`;
  // Counters grow from the first chunk on, so this one is made first.
  const opening = delta({ role: 'assistant', content: '' });
  const body = [
    ...reasoningDeltas(reasoning, seen, habits),
    ...chunks.map((content): Json => ({ content })),
    ...callDeltas(answer.toolCalls ?? [], seen, habits),
  ].map((value) => comment + delta(value));
  return {
    opening,
    body,
    ending: [
      delta({}, habits.finish?.[finish] ?? finish),
      ...(shown !== null && habits.usageAt === 'end' ? [event([], { usage: habits.usage(shown) })] : []),
      ...(answer.withoutDone || habits.withoutDone ? [] : [`data: [DONE]${line}${line}`]),
    ],
  };
}

function reasoningDeltas(pieces: readonly string[], seen: AnsweredRequest, habits: UpstreamHabits): Json[] {
  if (pieces.length === 0) return [];
  if (habits.splitField === undefined || isOn(seen, habits.splitField))
    return pieces.map((piece) => ({ [habits.reasoningField]: piece }));
  return ['<think>\n', ...pieces, '\n</think>\n\n'].map((content) => ({ content }));
}

type Call = Readonly<Json>;
const functionOf = (call: Call) => (call['function'] ?? {}) as { name?: string; arguments?: string };

function callDeltas(calls: readonly Call[], seen: AnsweredRequest, { calls: way }: UpstreamHabits): Json[] {
  const one = (value: Json): Json => ({ tool_calls: [value] });
  if (typeof way === 'object' && !isOn(seen, way.wholeUnless)) {
    return calls.length === 0 ? [] : [{ tool_calls: calls.map((call, index) => ({ index, ...call })) }];
  }
  if (way === 'whole') return calls.map((call, index) => one({ index, ...call }));
  const streams = calls.map((call, index): Json[] => {
    const { name = '', arguments: args = '' } = functionOf(call);
    const { function: _, ...rest } = call;
    const head = one({ index, ...rest, function: { name, arguments: '' } });
    return [
      head,
      ...halves(args).map((piece) => {
        if (way !== 'repeated') return one({ index, function: { arguments: piece } });
        return one({ index, id: '', type: 'function', function: { name: '', arguments: piece } });
      }),
    ];
  });
  return way === 'interleaved' ? inTurns(streams) : streams.flat();
}

const halves = (text: string): string[] => {
  const middle = Math.ceil(text.length / 2);
  return [text.slice(0, middle), text.slice(middle)].filter((part) => part !== '');
};

/** One of each list in turn until all are at their end. */
function inTurns<T>(lists: readonly (readonly T[])[]): T[] {
  const longest = Math.max(0, ...lists.map(({ length }) => length));
  return Array.from({ length: longest }).flatMap((_, index) =>
    lists.flatMap((list) => list.slice(index, index + 1)),
  );
}
