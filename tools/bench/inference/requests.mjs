/** The requests that the bench sends, in the three formats. */

export const model = 'glm-5.3';
const system = 'You are a helpful assistant.';
const question = 'Say ten short words about the weather in the mountains, please.';

/** The formats with their paths, and a request's fields around its prompt. */
export const formats = {
  chat: {
    path: '/v1/chat/completions',
    fields: (prompt, stream) => ({
      messages: [
        { role: 'system', content: system },
        { role: 'user', content: prompt },
      ],
      max_tokens: 1_024,
      temperature: 0.7,
      ...(stream ? { stream_options: { include_usage: true } } : {}),
    }),
  },
  messages: {
    path: '/v1/messages',
    fields: (prompt) => ({ system, messages: [{ role: 'user', content: prompt }], max_tokens: 1_024 }),
  },
  responses: {
    path: '/v1/responses',
    fields: (prompt) => ({ instructions: system, input: prompt, max_output_tokens: 1_024 }),
  },
};

/**
 * A job for the generator without its connections.
 * @param {{ origin: string, headers: Record<string, string> }} lane
 */
export function requestOf(lane, { format = 'chat', stream = false, prompt = question } = {}) {
  const { path, fields } = formats[format];
  return {
    origin: lane.origin,
    path,
    headers: lane.headers,
    body: JSON.stringify({ model, ...fields(prompt, stream), ...(stream ? { stream } : {}) }),
  };
}

/** A prompt of about so many bytes: words and lines, as documents have them. */
export const longPrompt = (bytes) =>
  'The quick brown fox "jumps" over the lazy dog, and then it rests a while.\n'
    .repeat(Math.ceil(bytes / 75))
    .slice(0, bytes);

/** Formats that a lane answers; the others are named. */
export async function formatsOf(lane) {
  const found = { has: [], lacks: [] };
  for (const [name, { path }] of Object.entries(formats)) {
    const { body, headers } = requestOf(lane, { format: name });
    const answer = await fetch(`${lane.origin}${path}`, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body,
    });
    await answer.body?.cancel();
    if (answer.status === 200) found.has.push(name);
    else if (answer.status === 404) found.lacks.push(`${path} answers 404`);
    else found.lacks.push(`${path} answers ${answer.status}`);
  }
  return found;
}
