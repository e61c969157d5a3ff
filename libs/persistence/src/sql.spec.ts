import { freshDatabase, sharedPostgres } from '@nebo/test-kit';
import { Database, sqlArray } from './sql.js';

describe('an array as text', () => {
  let database: Database;
  beforeAll(async () => {
    database = new Database({ url: await freshDatabase(), schema: 'public' });
  });
  afterAll(async () => {
    await database?.close();
    await (await sharedPostgres()).stop();
  });
  const back = async (type: string, values: Parameters<typeof sqlArray>[0]) =>
    (await database.query<{ back: unknown[] }>(`select $1::${type}[] as back`, [sqlArray(values)]))[0]!.back;

  it('arrives as it was, whatever its texts hold', async () => {
    const texts = ['', 'NULL', 'null', '"', '\\', '\\"', 'a,b', '{c}', ' d ', 'e\nf\t', '’й😀', '%$1'];
    expect(await back('text', texts)).toEqual(texts);
    expect(await back('text', [])).toEqual([]);
    expect(await back('text', [null, 'a', undefined])).toEqual([null, 'a', null]);
    expect(await back('boolean', [true, false, null])).toEqual([true, false, null]);
    expect(await back('integer', [1, null, -3])).toEqual([1, null, -3]);
    expect((await back('bigint', [9_007_199_254_740_993n, null])).map(String)).toEqual([
      '9007199254740993',
      'null',
    ]);
    expect(await back('float8', [1_790_000_000_123, 0.5])).toEqual([1_790_000_000_123, 0.5]);
  });
});
