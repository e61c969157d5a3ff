/** Everything that stdin brings, as UTF-8 text. */
export async function readAll(stdin: AsyncIterable<unknown>): Promise<string> {
  return (await readBytes(stdin)).toString('utf8');
}

/** Everything that stdin brings. */
export async function readBytes(stdin: AsyncIterable<unknown>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stdin)
    chunks.push(typeof chunk === 'string' ? Buffer.from(chunk) : (chunk as Buffer));
  return Buffer.concat(chunks);
}
