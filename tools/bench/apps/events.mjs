/**
 * Lines of an event stream as they come, until the caller stops or `done` is said.
 * @returns {AsyncGenerator<string>}
 */
export async function* lines({ baseUrl, key }, path) {
  const over = new AbortController();
  const answer = await fetch(`${baseUrl}${path}`, {
    headers: { authorization: `Bearer ${key}` },
    signal: over.signal,
  });
  if (answer.status !== 200) throw new Error(`GET ${path} answered ${answer.status}: ${await answer.text()}`);
  let text = '';
  try {
    for await (const part of answer.body.pipeThrough(new TextDecoderStream())) {
      text += part;
      for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
        const event = text.slice(0, end);
        if (/^event: done$/m.test(event)) return;
        const data = /^data: ?(.*)$/m.exec(event)?.[1];
        if (data !== undefined) yield data;
      }
    }
  } finally {
    over.abort();
  }
}

export async function firstLine(nebo, path) {
  for await (const line of lines(nebo, path)) return line;
  throw new Error(`${path} has no line`);
}
