import { CliError } from '../core/errors.js';
import { exitCodes } from '../core/exit-codes.js';
import { at, rest, type ApiClient } from '../http/client.js';
import { streamItems } from '../http/event-stream.js';
import { failureOf } from '../http/failures.js';
import { bodyText } from '../http/transport.js';

export interface LogEnd {
  /** `done` was seen: these are all lines. */
  complete: boolean;
  lines: number;
}

/** Broken streams in a row, without a new line between them, that are resumed. */
const resumes = 5;

/**
 * Reads the log of a build to its end, live while the build runs. A lost connection is resumed: the log is read again
 * from its beginning and the lines already given out are skipped by count, since a second read gives the same lines.
 * @param onLost hears of every loss
 * @throws CliError for a refusal; the signal's reason
 */
export async function followLog(
  client: ApiClient,
  appId: string,
  buildId: string,
  onLine: (line: string) => void,
  onLost: () => void,
  signal: AbortSignal,
): Promise<LogEnd> {
  const path = at`/apps/${appId}/builds/${buildId}/logs`;
  let lines = 0;
  for (let losses = 0; ;) {
    let skip = lines;
    try {
      const answer = await client.open({ method: 'GET', path, accept: 'text/event-stream', signal });
      if (answer.statusCode !== 200)
        throw failureOf(answer.statusCode ?? 0, answer.headers, await bodyText(answer, signal));
      for await (const item of streamItems(answer)) {
        if (item.kind === 'done') return { complete: true, lines };
        if (skip-- > 0) continue;
        lines++;
        losses = 0;
        onLine(item.text);
      }
    } catch (error) {
      signal.throwIfAborted();
      // A broken socket throws its own error here; only an answer of the server is final.
      if (error instanceof CliError && error.exit !== exitCodes.service) throw error;
    }
    if (++losses > resumes) return { complete: false, lines };
    onLost();
    await rest(Math.min(4000, 250 * 2 ** losses), signal);
  }
}
