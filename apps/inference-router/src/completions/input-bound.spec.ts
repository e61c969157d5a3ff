import { builtInModels } from '../catalogue/models.js';
import { countPrompt } from '../simulator/simulated-text.js';
import { costOf, worstCase } from './cost.js';
import { inputBound, jsonBound, textBound } from './input-bound.js';
import type { OrderMessage } from './order.js';

const model = builtInModels.find(({ id }) => id === 'kimi-k3')!;
const small = builtInModels.find(({ id }) => id === 'glm-5v-turbo')!;
const order = (messages: OrderMessage[]) => ({ messages, tools: [], settings: {} });

/** A repeatable random source (mulberry32). */
function randomOf(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** Texts of all planes: ASCII, Cyrillic, Hangul jamo, signs that grow under normalisation, emoji, lone surrogates. */
function randomText(random: () => number): string {
  const ranges = [
    [0x20, 0x7e],
    [0x400, 0x4ff],
    [0x915, 0x95f],
    [0x1100, 0x11ff],
    [0xac00, 0xd7a3],
    [0xfb00, 0xfdfa],
    [0x1f300, 0x1faff],
    [0xd800, 0xdfff],
  ];
  const length = Math.floor(random() * 200);
  let text = '';
  for (let index = 0; index < length; index += 1) {
    const [low, high] = ranges[Math.floor(random() * ranges.length)]!;
    const code = low! + Math.floor(random() * (high! - low! + 1));
    text += code >= 0xd800 && code <= 0xdfff ? String.fromCharCode(code) : String.fromCodePoint(code);
  }
  return text;
}

describe('the bound of an input', () => {
  it('is never below the bytes of any text, however a tokenizer normalises it', () => {
    const random = randomOf(20261121);
    for (let round = 0; round < 2_000; round += 1) {
      const text = randomText(random);
      const bound = textBound(text);
      for (const form of [text, text.normalize('NFC'), text.normalize('NFKC')])
        expect(bound).toBeGreaterThanOrEqual(Buffer.byteLength(form));
      // Tokens that stand for one byte each are the worst that a byte-level tokenizer can do.
      expect(inputBound(order([{ role: 'user', content: text }]), model)).toBeGreaterThanOrEqual(
        Buffer.byteLength(text) + 64,
      );
    }
    expect(textBound('ﷺ')).toBe(33);
  });

  it('of what fills the window many times over is the window, at once', () => {
    // Each sign becomes eighteen under NFKC: normalising all of it would take seconds and a gigabyte.
    const long = 'ﷺ'.repeat(9_000_000);
    const parts = Array.from({ length: 20_000 }, () => ({ type: 'text' as const, text: 'ﷺ'.repeat(100) }));
    const began = performance.now();
    for (const content of [long, [{ type: 'text' as const, text: long }], parts]) {
      expect(inputBound(order([{ role: 'user', content }]), model)).toBe(model.contextWindow);
      expect(inputBound(order(Array.from({ length: 50 }, () => ({ role: 'user', content }))), model)).toBe(
        model.contextWindow,
      );
    }
    expect(performance.now() - began).toBeLessThan(2_000);
  });

  it('is never below what templates make of JSON: escapes, spaces, indentation', () => {
    const random = randomOf(7);
    for (let round = 0; round < 500; round += 1) {
      const value = {
        name: randomText(random),
        list: [1, { deep: randomText(random) }],
        [randomText(random)]: null,
      };
      const escaped = JSON.stringify(value, null, 1).replace(
        /[\u007f-\uffff]/g,
        (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
      );
      expect(jsonBound(value)).toBeGreaterThanOrEqual(escaped.length);
    }
  });

  it('grows with every part and counts images at the maximum', () => {
    const text: OrderMessage = { role: 'user', content: 'x' };
    const image: OrderMessage = {
      role: 'user',
      content: [{ type: 'image_url', image_url: { url: 'https://e.org/x' } }],
    };
    const base = inputBound(order([text]), small);
    expect(inputBound(order([text, image]), small)).toBe(base + 64 + small.imageTokensMax);
    const call: OrderMessage = {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } }],
      reasoning_content: 'hm',
    };
    expect(inputBound(order([text, call]), small)).toBeGreaterThan(base + 64 + 64);
    expect(
      inputBound({ ...order([text]), tools: [{ type: 'function', function: { name: 'f' } }] }, small),
    ).toBeGreaterThan(base + 64);
    expect(
      inputBound({ ...order([text]), settings: { response_format: { type: 'json_schema' } } }, small),
    ).toBeGreaterThan(base);
    expect(inputBound(order([{ role: 'user', content: 'x'.repeat(1_000_000) }]), small)).toBe(
      small.contextWindow,
    );
  });

  it("covers the simulator's counting", () => {
    const random = randomOf(3);
    for (let round = 0; round < 300; round += 1) {
      const messages: OrderMessage[] = Array.from({ length: 1 + Math.floor(random() * 5) }, () => ({
        role: 'user',
        content: randomText(random),
      }));
      expect(inputBound(order(messages), model)).toBeGreaterThanOrEqual(countPrompt(messages));
    }
  });
});

describe('the cost of a request', () => {
  const tariff = {
    input: 60_000_000_000n,
    cache_read: 12_000_000_000n,
    output: 240_000_000_000n,
    version: 1,
    refs: [],
  };

  it('is the exact sum, rounded up once', () => {
    expect(costOf({ input: 120, cached: 64, output: 30, reasoning: 10 }, 4_096, tariff)).toBe(11_328_000n);
    const odd = { input: 1n, cache_read: 1n, output: 1n, version: 1, refs: [] };
    expect(costOf({ input: 3, cached: 1, output: 2, reasoning: 0 }, 4_096, odd)).toBe(1n);
    expect(costOf({ input: 0, cached: 0, output: 0, reasoning: 0 }, 4_096, odd)).toBe(0n);
  });

  it('never exceeds the worst case for counters within the bounds', () => {
    const random = randomOf(11);
    for (let round = 0; round < 2_000; round += 1) {
      const price = () => BigInt(Math.floor(random() * 1e12));
      const prices = { input: price(), cache_read: price(), output: price(), version: 1, refs: [] };
      const [bound, ceiling] = [Math.floor(random() * 1e6), Math.floor(random() * 1e5)];
      const input = Math.floor(random() * (bound + 1));
      const counters = {
        input,
        cached: Math.floor(random() * (input + 1)),
        output: Math.floor(random() * (ceiling + 1)),
        reasoning: 0,
      };
      expect(costOf(counters, ceiling, prices)).toBeLessThanOrEqual(worstCase(bound, ceiling, prices));
    }
  });
});
