/** What a stream of server-sent events says, line by line. */
export type StreamItem = { kind: 'data'; text: string } | { kind: 'done' };

/**
 * Reads a stream as the contract defines it (4-client-behaviours.md section 5): every `data:` line is one item and is
 * counted, the line `event: done` ends the stream, comments and everything else are ignored. This is deliberately not
 * the browser's algorithm, which joins `data:` lines and drops an event without data.
 * A line that the connection cut in half is not given out: the next read of the log brings it whole.
 */
export async function* streamItems(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<StreamItem> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop()!;
    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
      if (line.startsWith('data:'))
        yield { kind: 'data', text: line.slice(line.startsWith('data: ') ? 6 : 5) };
      else if (/^event: ?done$/.test(line)) {
        yield { kind: 'done' };
        return;
      }
    }
  }
}
