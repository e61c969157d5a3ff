import { childTraceparent, formatTraceparent, newTrace, parseTraceparent } from './traceparent.js';

const trace = '0af7651916cd43dd8448eb211c80319c';
const span = 'b7ad6b7169203331';

describe('parseTraceparent', () => {
  it.each([
    [`00-${trace}-${span}-01`, true],
    [`00-${trace}-${span}-00`, false],
    [`00-${trace}-${span}-03`, true],
    [`00-${trace}-${span}-02`, false],
    [`cc-${trace}-${span}-01`, true],
    [`cc-${trace}-${span}-01-what-the-future-holds`, true],
  ])('reads %s', (text, sampled) => {
    expect(parseTraceparent(text)).toEqual({ traceId: trace, spanId: span, sampled });
  });

  it.each([
    '',
    'x',
    `00-${trace}-${span}`,
    `00-${trace}-${span}-01-more`,
    `ff-${trace}-${span}-01`,
    `cc-${trace}-${span}-01.x`,
    `00-${'0'.repeat(32)}-${span}-01`,
    `00-${trace}-${'0'.repeat(16)}-01`,
    `00-${trace.toUpperCase()}-${span}-01`,
    `00-${trace}-${span}-0x`,
    `00-${trace}-${span}-1`,
    `0-${trace}-${span}-01`,
    `00-${trace}1-${span}-01`,
    ` 00-${trace}-${span}-01`,
    `00-${trace}-${span}-01\n`,
    `cc-${trace}-${span}-01-${'x'.repeat(600)}`,
  ])('ignores %j', (text) => {
    expect(parseTraceparent(text)).toBeNull();
  });

  it('ignores what is no single text', () => {
    expect(parseTraceparent(undefined)).toBeNull();
    expect(parseTraceparent(null)).toBeNull();
    expect(parseTraceparent([`00-${trace}-${span}-01`])).toBeNull();
  });
});

describe('childTraceparent', () => {
  it('stays in the trace under a new span, and keeps the sampling', () => {
    const child = parseTraceparent(childTraceparent(`00-${trace}-${span}-01`))!;
    expect(child).toMatchObject({ traceId: trace, sampled: true });
    expect(child.spanId).not.toBe(span);
  });

  it('begins a trace when there is none', () => {
    const [one, two] = [childTraceparent(null), childTraceparent('garbage')];
    expect(parseTraceparent(one)).not.toBeNull();
    expect(parseTraceparent(two)!.traceId).not.toBe(parseTraceparent(one)!.traceId);
  });

  it('format and parse are inverse', () => {
    for (const sampled of [true, false]) {
      const point = newTrace(sampled);
      expect(parseTraceparent(formatTraceparent(point))).toEqual(point);
    }
  });
});
