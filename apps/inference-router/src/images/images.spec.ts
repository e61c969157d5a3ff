import { Cancel } from '../completions/cancel.js';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ApiError } from '@nebo/service-kit';
import { startUpstreamModel, type UpstreamModel } from '@nebo/test-kit';
import type { OrderMessage, OrderPart } from '../completions/order.js';
import { type Outbound, startOutbound } from '../../test/outbound.js';
import { checkPictures, pictureLimit } from './picture.js';

const png = Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), Buffer.alloc(60, 1)]);
const files: Record<string, Buffer> = {
  png,
  jpeg: Buffer.concat([Buffer.from([0xff, 0xd8, 0xff, 0xe0]), Buffer.alloc(60, 2)]),
  gif: Buffer.from('GIF89a and more than sixteen bytes of it'),
  webp: Buffer.from('RIFF\x10\x00\x00\x00WEBPVP8 and so on', 'latin1'),
};
const image = (url: string): OrderPart => ({ type: 'image_url', image_url: { url } });
const data = (type: string, bytes: Buffer) => `data:${type};base64,${bytes.toString('base64')}`;
const user = (...parts: OrderPart[]): OrderMessage[] => [
  { role: 'system', content: 'x' },
  { role: 'user', content: [{ type: 'text', text: 'look' }, ...parts] },
];

function refusal(work: () => unknown): ApiError {
  try {
    work();
  } catch (error) {
    expect(error).toBeInstanceOf(ApiError);
    return error as ApiError;
  }
  throw new Error('was not refused');
}

describe('pictures in a request', () => {
  it.each(Object.entries(files))('takes %s as a data: URI', (type, bytes) => {
    expect(() => checkPictures(user(image(data(`image/${type}`, bytes))))).not.toThrow();
  });

  it('takes links to anywhere, private addresses too: the vendor fetches them', () => {
    for (const url of ['http://10.0.0.1/a.png', 'HTTPS://example.org/a', 'https://localhost/x'])
      expect(() => checkPictures(user(image(url)))).not.toThrow();
  });

  it.each([
    ['another scheme', 'file:///etc/passwd'],
    ['a scheme of code', 'javascript:alert(1)'],
    ['no address at all', 'http://'],
    ['no base64 mark', `data:image/png,${png.toString('base64')}`],
    ['no comma', 'data:image/png;base64'],
    ['letters that are not base64', 'data:image/png;base64,iVBORw0KGgo$$$$AAAA'],
    ['a length that cannot be', 'data:image/png;base64,iVBORw0KGgoAA'],
    ['a text', data('image/png', Buffer.from('this is a text and no picture'))],
    ['the label of another kind', data('text/plain', png)],
    ['a vector drawing', data('image/svg+xml', Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>'))],
    ['nothing', 'data:image/png;base64,'],
  ])('refuses %s, naming the message', (_what, url) => {
    const error = refusal(() => checkPictures(user(image(url))));
    expect(error).toMatchObject({ status: 400, code: 'unsupported_image' });
    expect(error.message).toMatch(/^messages\.1\.content\.1: /);
  });

  it('refuses what is too large, by its length alone', () => {
    const fits = Buffer.concat([png, Buffer.alloc(pictureLimit - png.length)]);
    expect(() => checkPictures(user(image(data('image/png', fits))))).not.toThrow();
    const larger = Buffer.concat([fits, Buffer.alloc(1)]);
    expect(refusal(() => checkPictures(user(image(data('image/png', larger)))))).toMatchObject({
      status: 400,
      code: 'image_too_large',
    });
  });
});

describe('pictures for a vendor that takes bytes', () => {
  let vendor: UpstreamModel;
  let outbound: Outbound;
  let web: string;
  const seen: string[] = [];
  const answers: Record<string, (response: ServerResponse) => void> = {
    '/text': (response) => response.end('hello, this is a text'),
    '/gone': (response) => response.writeHead(404).end(),
    '/private': (response) => response.writeHead(302, { location: 'http://127.0.0.1:1/a.png' }).end(),
    '/moved': (response) => response.writeHead(302, { location: '/png' }).end(),
    '/large': (response) => {
      response.write(png);
      response.end(Buffer.alloc(pictureLimit));
    },
    '/cut': (response) => {
      response.writeHead(200, { 'content-length': '1000' });
      response.write(png, () => response.destroy());
    },
    '/slow': () => undefined,
  };
  for (const [type, bytes] of Object.entries(files)) answers[`/${type}`] = (response) => response.end(bytes);
  const server = createServer((request, response) => {
    seen.push(request.url!);
    (answers[request.url!.replace(/\?.*/, '')] ?? answers['/gone']!)(response);
  });

  beforeAll(async () => {
    vendor = await startUpstreamModel();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    web = `http://127.0.0.1:${port}`;
    outbound = startOutbound(
      `
providers:
  bytes: { base_url: "${vendor.url}", dialect: openai, images: bytes }
  kimi: { base_url: "${vendor.url}", dialect: moonshot }
  links: { base_url: "${vendor.url}", dialect: moonshot, images: links }
models:
  kimi-k3: { upstreams: [{ provider: bytes, priority: 1 }, { provider: kimi, priority: 2 }] }
  mimo-v2.6-pro: { upstreams: [{ provider: links }] }
`,
      { NEBO_SAFE_NET_ALLOW: `127.0.0.1:${port}` },
    );
  });
  beforeEach(() => {
    vendor.reset();
    seen.length = 0;
  });
  afterAll(async () => {
    server.closeAllConnections();
    server.close();
    await outbound?.stop();
    await vendor?.stop();
  });
  const ask = (model: string, ...urls: string[]) =>
    outbound.ask(outbound.order(model, { messages: user(...urls.map(image)) }));
  const sent = () => (vendor.requests.at(-1)!.body!['messages'] as OrderMessage[])[1]!.content as OrderPart[];

  it.each(Object.entries(files))('%s is fetched and sent as it is', async (type, bytes) => {
    await ask('kimi-k3', `${web}/${type}`);
    expect(sent()[1]).toEqual(image(data(`image/${type}`, bytes)));
  });

  it('a link goes on untouched where the vendor takes links, and nothing is fetched', async () => {
    await ask('mimo-v2.6-pro', `${web}/png`, data('image/png', png));
    expect(sent().slice(1)).toEqual([image(`${web}/png`), image(data('image/png', png))]);
    expect(seen).toEqual([]);
  });

  it('a picture under the label of another type gets its own: vendors refuse what does not fit', async () => {
    await ask(
      'mimo-v2.6-pro',
      data('image/jpeg', png),
      data('image/jpg', files['jpeg']!),
      data('image/png', png),
    );
    expect(sent().slice(1)).toEqual([
      image(data('image/png', png)),
      image(data('image/jpeg', files['jpeg']!)),
      image(data('image/png', png)),
    ]);
  });

  it('each link is fetched once, for the next vendor too; redirects to good places are followed', async () => {
    vendor.next({ status: 500 });
    await ask('kimi-k3', `${web}/moved`, `${web}/moved`, data('image/gif', files['gif']!));
    expect(vendor.calls()).toBe(2);
    expect(seen).toEqual(['/moved', '/png']);
    expect(sent().slice(1)).toEqual([
      image(data('image/png', png)),
      image(data('image/png', png)),
      image(data('image/gif', files['gif']!)),
    ]);
  });

  it.each([
    ['a text', '/text', 'unsupported_image'],
    ['a missing file', '/gone', 'image_unavailable'],
    ['a file of more than 10 MiB', '/large', 'image_too_large'],
    ['a redirect to a private place', '/private', 'image_unavailable'],
    ['a broken answer', '/cut', 'image_unavailable'],
  ])('%s is an error that names the message; the vendor is not asked', async (_what, path, code) => {
    const error: unknown = await ask('kimi-k3', `${web}/png`, `${web}${path}`).catch(
      (cause: unknown) => cause,
    );
    expect(error).toMatchObject({
      status: 400,
      code,
      message: expect.stringContaining('messages.1.content.2'),
    });
    expect(vendor.calls()).toBe(0);
  });

  it.each([
    'http://127.0.0.1:1/a.png',
    'http://169.254.169.254/latest',
    'http://[::1]/a',
    'http://localhost/a',
  ])('a private address is never asked: %s', async (url) => {
    await expect(ask('kimi-k3', url)).rejects.toMatchObject({ status: 400, code: 'image_unavailable' });
  });

  it('twenty pictures at most, each counted once', async () => {
    const many = (count: number) => Array.from({ length: count }, (_, index) => `${web}/png?${index}`);
    await ask('kimi-k3', ...many(20), `${web}/png?0`);
    expect(seen).toHaveLength(20);
    await expect(ask('kimi-k3', ...many(21))).rejects.toMatchObject({ code: 'image_unavailable' });
  });

  it('a client that leaves ends the fetching', async () => {
    const gone = new Cancel();
    const work = outbound.ask(outbound.order('kimi-k3', { messages: user(image(`${web}/slow`)) }), gone);
    while (seen.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    gone.cancel(new Error('left'));
    await expect(work).rejects.toThrow('left');
    expect(vendor.calls()).toBe(0);
  });
});
