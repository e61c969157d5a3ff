import type { OperationSpec } from '@nebo/contracts';
import type { FastifyReply } from 'fastify';
import type { Changes } from './changes.js';
import { validationError } from './errors.js';

/** `wait=<state>&timeout=<1..60>` of a GET (contract README). */
export interface Wait {
  state: string;
  ms: number;
}

/** How the two parameters are documented. */
export const waitQuery = (words: readonly string[]): NonNullable<OperationSpec['query']> => [
  { name: 'wait', required: false, schema: { type: 'string', enum: [...words] } },
  { name: 'timeout', required: false, schema: { type: 'integer', minimum: 1, maximum: 60, default: 30 } },
];

/**
 * Reads the two parameters, or null without `wait`.
 * @throws ApiError 422 for an unknown word or a time out of bounds
 */
export function parseWait(state: unknown, timeout: unknown, words: readonly string[]): Wait | null {
  if (
    timeout !== undefined &&
    !(
      typeof timeout === 'string' &&
      /^\d{1,2}$/.test(timeout) &&
      Number(timeout) >= 1 &&
      Number(timeout) <= 60
    )
  ) {
    throw validationError([
      { loc: ['query', 'timeout'], msg: 'must be a whole number of seconds from 1 to 60', type: 'int_type' },
    ]);
  }
  if (state === undefined) return null;
  if (typeof state !== 'string' || !words.includes(state)) {
    throw validationError([
      {
        loc: ['query', 'wait'],
        msg: `must be one of the following values: ${words.join(', ')}`,
        type: 'enum',
      },
    ]);
  }
  return { state, ms: Number(timeout ?? 30) * 1_000 };
}

/** Looks again at each change until `done` holds, the time is over or the client is gone; answers what was seen last. */
export async function waitUntil<T, Topic extends string>(
  changes: Changes<Topic>,
  topic: NoInfer<Topic>,
  ms: number,
  gone: AbortSignal,
  look: () => Promise<T>,
  done: (seen: T) => boolean,
): Promise<T> {
  const ear = changes.listen(topic);
  const end = Date.now() + ms;
  const over = AbortSignal.any([gone, changes.stopping]);
  try {
    for (;;) {
      const seen = await look();
      const left = end - Date.now();
      if (done(seen) || left <= 0 || over.aborted) return seen;
      await ear.next(left, over);
    }
  } finally {
    ear.close();
  }
}

/** Aborted when the client of an answer that is not finished goes away. */
export function clientGone(reply: FastifyReply): AbortSignal {
  const gone = new AbortController();
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) gone.abort();
  });
  return gone.signal;
}
