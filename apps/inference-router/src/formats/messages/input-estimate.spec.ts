import { readRequest } from '../../../test/messages.js';
import { inputBound } from '../../completions/input-bound.js';
import { estimateInput } from './input-estimate.js';

const estimate = (content: unknown, more: Record<string, unknown> = {}) =>
  estimateInput(readRequest({ messages: [{ role: 'user', content }], ...more }).order);

describe('the estimate of an input', () => {
  it('is near what tokenizers make of English, Russian, Chinese and code', () => {
    const per = (text: string) => text.length / estimate(text);
    expect(per('The quick brown fox jumps over the lazy dog. '.repeat(100))).toBeCloseTo(4, 0);
    expect(per('Съешь же ещё этих мягких французских булок. '.repeat(100))).toBeCloseTo(2.7, 0);
    expect(per('天地玄黄宇宙洪荒'.repeat(100))).toBeCloseTo(1.8, 0);
  });

  it('grows with tools, pictures, calls and thoughts, and is never above the bound that is held', () => {
    const image = {
      type: 'image',
      source: { type: 'base64', media_type: 'image/png', data: 'x'.repeat(9_999) },
    };
    const tools = [{ name: 'look', description: 'x'.repeat(400), input_schema: { type: 'object' } }];
    const plain = estimate('hi');
    expect(plain).toBeGreaterThan(0);
    expect(estimate('hi', { tools })).toBeGreaterThan(plain + 100);
    expect(estimate([{ type: 'text', text: 'hi' }, image]) - plain).toBe(1_000);
    const { order } = readRequest({
      tools,
      messages: [
        { role: 'user', content: 'x' },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'x'.repeat(400), signature: '' },
            { type: 'tool_use', id: '1', name: 'look', input: { a: 'x'.repeat(400) } },
          ],
        },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: '1', content: [image] }] },
      ],
    });
    expect(estimateInput(order)).toBeGreaterThan(1_300);
    expect(estimateInput(order)).toBeLessThan(inputBound(order, order.offer.model));
  });

  it('of a picture goes by its size, in each of the forms', () => {
    const picture = (head: number[], type = 'png') => ({
      type: 'image',
      source: {
        type: 'base64',
        media_type: `image/${type}`,
        data: Buffer.concat([Buffer.from(head), Buffer.alloc(64)]).toString('base64'),
      },
    });
    const text = (value: string) => [...Buffer.from(value, 'latin1')];
    const png = (width: number[], height: number[]) =>
      picture([...text('\x89PNG\r\n\x1a\n\0\0\0\rIHDR'), 0, 0, ...width, 0, 0, ...height]);
    const cost = (image: object, model = 'glm-5v-turbo') =>
      estimate([image], { model }) -
      estimate([], { model, system: undefined, messages: [{ role: 'user', content: 'x' }] });
    const near = (image: object) => Math.round(cost(image) / 100) / 10;
    const [w1024, h768, w3840, h2160] = [
      [4, 0],
      [3, 0],
      [15, 0],
      [8, 112],
    ];
    // The figures of the spec.
    expect(near(png(w1024!, h768!))).toBe(1);
    expect(near(png(w3840!, h2160!))).toBe(6);
    expect(near(picture([...text('GIF89a'), 0, 4, 0, 3], 'gif'))).toBe(1);
    const riff = text('RIFF\0\0\0\0WEBP');
    expect(
      near(picture([...riff, ...text('VP8X'), 0, 0, 0, 0, 0, 0, 0, 0, 255, 3, 0, 255, 2, 0], 'webp')),
    ).toBe(1);
    const lossless = 1_023 | (767 << 14);
    const bits = [lossless, lossless >> 8, lossless >> 16, lossless >> 24].map((byte) => byte & 255);
    expect(near(picture([...riff, ...text('VP8L'), 0, 0, 0, 0, 0x2f, ...bits], 'webp'))).toBe(1);
    expect(
      near(picture([...riff, ...text('VP8 '), 0, 0, 0, 0, 0, 0, 0, 157, 1, 42, 0, 4, 0, 3], 'webp')),
    ).toBe(1);
    const profile = [0xff, 0xe1, 0, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    const frame = [0xff, 0xc2, 0, 17, 8, 3, 0, 4, 0];
    expect(near(picture([0xff, 0xd8, ...profile, 0xff, 0xdb, 0, 3, 0, ...frame], 'jpeg'))).toBe(1);
    // Nothing is known of these, so they count as common ones.
    for (const head of [
      [],
      [0xff, 0xd8, 0xff, 0xe1, 200, 0],
      [0xff, 0xd8, 1, 1],
      text('BM'),
      [...riff, ...text('????')],
    ])
      expect(near(picture(head))).toBe(1);
    expect(near({ type: 'image', source: { type: 'url', url: 'https://example.org/a.png' } })).toBe(1);
    // No more than the model can be billed for.
    expect(cost(png([255, 255], [255, 255]))).toBeLessThanOrEqual(8_192);
  });

  it('ends at the window of the model', () => {
    expect(estimate('x'.repeat(9_000_000))).toBe(1_048_576);
  });
});
