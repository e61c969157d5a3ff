import { compactContract, type OpenApiDocument } from './compact.js';

const table = (schema: object, more: object = {}) =>
  compactContract({
    paths: {
      '/v1/things': {
        post: {
          operationId: 'things_create',
          tags: ['things'],
          requestBody: {
            required: true,
            content: { 'application/json': { schema: { $ref: '#/components/schemas/Thing' } } },
          },
          responses: { 201: {} },
        },
      },
    },
    components: { schemas: { Thing: schema, ...more } },
  } as OpenApiDocument);

const fields = (properties: object, more: object = {}) =>
  Object.fromEntries(
    table({ type: 'object', properties }, more).records['Thing']!.fields.map((field) => [field.name, field]),
  );

describe('the compact table', () => {
  test('the prefix goes, the rest of the operation stays', () => {
    expect(table({}).operations).toEqual([
      {
        id: 'things_create',
        method: 'POST',
        path: '/things',
        section: 'things',
        summary: '',
        permissions: [],
        query: [],
        body: { type: 'application/json', required: true, record: 'Thing' },
        answers: [{ status: '201' }],
      },
    ]);
  });

  test('null in its three spellings', () => {
    const found = fields({
      a: { type: ['string', 'null'] },
      b: { anyOf: [{ type: 'integer' }, { type: 'null' }] },
      c: { type: 'boolean', nullable: true },
      d: { type: 'string' },
    });
    expect(['a', 'b', 'c', 'd'].map((name) => [found[name]!.type, found[name]!.nullable])).toEqual([
      ['string', true],
      ['integer', true],
      ['boolean', true],
      ['string', undefined],
    ]);
  });

  test('records in records, in lists, in themselves; named enumerations are strings', () => {
    const found = fields(
      {
        one: { $ref: '#/components/schemas/Inner' },
        many: { type: 'array', items: { $ref: '#/components/schemas/Inner' } },
        word: { $ref: '#/components/schemas/Word' },
        boxed: { allOf: [{ $ref: '#/components/schemas/Inner' }], nullable: true },
      },
      {
        Inner: { type: 'object', properties: { self: { $ref: '#/components/schemas/Inner' } } },
        Word: { type: 'string', enum: ['x', 'y'] },
      },
    );
    expect(found['one']).toMatchObject({ type: 'object', record: 'Inner' });
    expect(found['many']).toMatchObject({ type: 'array', items: { type: 'object', record: 'Inner' } });
    expect(found['word']).toMatchObject({ type: 'string', values: ['x', 'y'] });
    expect(found['boxed']).toMatchObject({ record: 'Inner', nullable: true });
  });

  test('limits, defaults, required, closed, texts', () => {
    const { records } = table({
      type: 'object',
      required: ['a'],
      additionalProperties: false,
      properties: {
        a: { type: 'string', minLength: 1, maxLength: 9, description: 'What.' },
        b: { type: 'integer', minimum: 0, default: 0 },
      },
    });
    expect(records['Thing']).toEqual({
      closed: true,
      fields: [
        { name: 'a', type: 'string', required: true, min: 1, max: 9, about: 'What.' },
        { name: 'b', type: 'integer', min: 0, default: 0 },
      ],
    });
  });

  test('a union is not guessed at', () => {
    expect(fields({ a: { anyOf: [{ type: 'string' }, { type: 'object' }] } })['a']).toEqual({
      name: 'a',
      type: 'any',
    });
  });

  test('x-nebo-upload names the type of a file, the last tag the section', () => {
    const post = {
      operationId: 'x',
      tags: ['Builds', 'apps'],
      'x-nebo-upload': 'application/gzip',
      requestBody: {
        required: true,
        content: { 'application/json': { schema: { type: 'string', format: 'binary' } } },
      },
    };
    const [found] = compactContract({ paths: { '/x': { post } } }).operations;
    expect(found).toMatchObject({ section: 'apps', body: { type: 'application/gzip', required: true } });
    expect(found!.body!.record).toBeUndefined();
  });

  test('what is no contract is refused', () => {
    expect(() => compactContract({})).toThrow('no paths');
  });
});
