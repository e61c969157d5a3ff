import type { Router } from './harness.js';

/** One of the three formats, as far as a test of all of them needs it. */
export interface AnyFormat {
  name: 'chat' | 'messages' | 'responses';
  path: string;
  /** A request that says "hi". */
  body(maxTokens: number | undefined): Record<string, unknown>;
  /** Is the text the end of a stream that is whole? */
  isWhole(stream: string): boolean;
}

const messages = [{ role: 'user', content: 'hi' }];

export const anyFormat: readonly AnyFormat[] = [
  {
    name: 'chat',
    path: '/v1/chat/completions',
    body: (maxTokens) => ({ messages, max_tokens: maxTokens }),
    isWhole: (stream) => stream.endsWith('data: [DONE]\n\n'),
  },
  {
    name: 'messages',
    path: '/v1/messages',
    // The one format whose requests must name a ceiling.
    body: (maxTokens) => ({ messages, max_tokens: maxTokens ?? 4_096 }),
    isWhole: (stream) => stream.includes('event: message_stop\n'),
  },
  {
    name: 'responses',
    path: '/v1/responses',
    body: (maxTokens) => ({ input: 'hi', max_output_tokens: maxTokens }),
    isWhole: (stream) => stream.includes('event: response.completed\n'),
  },
];

export interface AskOptions {
  model?: string;
  maxTokens?: number;
  stream?: boolean;
  signal?: AbortSignal;
  more?: Record<string, unknown>;
}

/** Says "hi" in a format. */
export const askIn = (
  router: Router,
  { path, body }: AnyFormat,
  { model = 'glm-5.3', maxTokens, stream = false, signal, more }: AskOptions = {},
): Promise<Response> =>
  fetch(`${router.url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model, ...body(maxTokens), stream, ...more }),
    ...(signal ? { signal } : {}),
  });
