import { EnumField, IntField, ListField, PageQuery, RecordField, StrField } from '@nebo/contracts';
import { ApiError } from './errors.js';
import { ClosedBody, ContractPipe } from './validation.js';

class Inner {
  @StrField({ max: 3 })
  name!: string;
}

class Body {
  @StrField({ min: 1, max: 5 })
  name!: string;
  @IntField({ min: 0, max: 10, default: 2 })
  count: number = 2;
  @EnumField(['a', 'b'], { nullable: true, optional: true })
  kind?: string | null;
  @ListField(() => Inner, { optional: true })
  inner?: Inner[];
  @RecordField(() => Inner, { optional: true })
  one?: Inner;
}

@ClosedBody()
class Closed extends Body {}

const pipe = new ContractPipe();
const body = (value: unknown, metatype: new () => object = Body) =>
  pipe.transform(value, { type: 'body', metatype });
const refusal = async (work: Promise<unknown>) => {
  const error = await work.then(
    () => undefined,
    (reason: ApiError) => reason,
  );
  return error?.detail?.map(({ loc, type }) => `${loc.join('.')} ${type}`);
};

describe('validation', () => {
  it('fills defaults, keeps absent apart from null, drops unknown fields', async () => {
    const made = (await body({ name: 'x', other: 1 })) as Body;
    expect(made.count).toBe(2);
    expect('kind' in made && made.kind !== undefined).toBe(false);
    expect('other' in made).toBe(false);
    expect(((await body({ name: 'x', kind: null })) as Body).kind).toBeNull();
  });

  it.each([
    [{}, ['body.name missing']],
    [{ name: '' }, ['body.name string_too_short']],
    [{ name: 'toolong' }, ['body.name string_too_long']],
    [{ name: 5 }, ['body.name string_type']],
    [{ name: null }, ['body.name string_type']],
    [{ name: 'x', count: '3' }, ['body.count int_type']],
    [{ name: 'x', count: 1.5 }, ['body.count int_type']],
    [{ name: 'x', count: null }, ['body.count int_type']],
    [{ name: 'x', count: 11 }, ['body.count less_than_equal']],
    [{ name: 'x', kind: 'c' }, ['body.kind enum']],
    [{ name: 'x', inner: [{ name: 'ok' }, { name: 'long' }] }, ['body.inner.1.name string_too_long']],
    [{ name: 'x', inner: { name: 'ok' } }, ['body.inner list_type']],
    [{ name: 'x', inner: ['text', [{ name: 'ok' }]] }, ['body.inner.0 model_type']],
    [{ name: 'x', one: [{ name: 'ok' }] }, ['body.one model_type']],
    [{ name: 'a\0' }, ['body.name value_error']],
    [{ name: 'a\ud800' }, ['body.name value_error']],
    [{ name: '\udc00a' }, ['body.name value_error']],
    [undefined, ['body missing']],
    [[], ['body model_type']],
    ['text', ['body model_type']],
  ])('422 for %j', async (value, expected) => {
    const found = await refusal(body(value));
    expect(found).toEqual(expect.arrayContaining(expected));
  });

  it('a closed body refuses unknown fields by name', async () => {
    expect(await refusal(body({ name: 'x', start_cmd: 'y' }, Closed))).toEqual([
      'body.start_cmd extra_forbidden',
    ]);
  });

  it('what is not declared costs nothing and names at most fifty', async () => {
    const many = Object.fromEntries(Array.from({ length: 60_000 }, (_, index) => [`k${index}`, {}]));
    const began = performance.now();
    expect(await body({ name: 'x', ...many, inner: [{ name: 'y', ...many }] })).toEqual({
      name: 'x',
      count: 2,
      inner: [{ name: 'y' }],
    });
    expect(await refusal(body({ name: many }))).toEqual(['body.name string_type']);
    expect(await refusal(body({ name: 'x', ...many }, Closed))).toHaveLength(50);
    // With a quadratic walk each of these takes seconds, in which nothing else is answered.
    expect(performance.now() - began).toBeLessThan(1_000);
  });

  it('names of the language are fields like others', async () => {
    const made = await body(JSON.parse('{"name":"x","constructor":{"a":1},"toString":1,"then":2}'));
    expect(made).toBeInstanceOf(Body);
    expect(Object.keys(made as object).sort()).toEqual(['count', 'name']);
    expect(
      await refusal(body(JSON.parse('{"name":"x","__proto__":{"count":5},"hasOwnProperty":1}'), Closed)),
    ).toEqual(['body.__proto__ extra_forbidden', 'body.hasOwnProperty extra_forbidden']);
    expect(await refusal(body(JSON.parse('{"__proto__":{"name":"x"}}')))).toEqual(['body.name missing']);
  });

  it.each(['0', '201', '1e2', '-1', '1.5', 'x', ''])('limit=%s is refused', async (limit) => {
    expect(await refusal(pipe.transform({ limit }, { type: 'query', metatype: PageQuery }))).toHaveLength(1);
  });

  it('reads limit and offset', async () => {
    expect(
      await pipe.transform({ limit: '200', offset: '7' }, { type: 'query', metatype: PageQuery }),
    ).toEqual({ limit: 200, offset: 7 });
    expect(await pipe.transform({}, { type: 'query', metatype: PageQuery })).toEqual({
      limit: 50,
      offset: 0,
    });
  });
});
