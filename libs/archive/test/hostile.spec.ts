import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { ArchiveRefused, checkArchive, extractArchive } from '../src/index.js';
import { entryFamilies } from './hostile.js';
import { streamFamilies } from './hostile-streams.js';
import { Random } from './random.js';

const families = [...entryFamilies, ...streamFamilies];
/** Mutations of each family; more with NEBO_PROOF: 40 is the bar of reliability.md section 7 (`npm run proof -- archive`). */
const mutations = Number(process.env['NEBO_PROOF'] || 4);
const seed = Number(process.env['NEBO_SEED'] || 20_261_121);

/** Bytes in pieces of random size, as a network gives them. */
function pieces(bytes: Buffer, random: Random): Readable {
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const next = at + random.pick([1, 7, 512, 4096, 65_536]);
    parts.push(bytes.subarray(at, next));
    at = next;
  }
  return Readable.from(parts.length > 3000 ? [bytes] : parts, { objectMode: false });
}

describe(`hostile archives (seed ${seed}, ${mutations} of each family)`, () => {
  let root: string;
  beforeAll(async () => {
    root = await mkdtemp(join(tmpdir(), 'nebo-hostile-'));
  });
  afterAll(() => rm(root, { recursive: true, force: true }));

  it('has at least 25 families', () => expect(families.length).toBeGreaterThanOrEqual(25));

  it.each(families.map((family, index) => [family.name, family, index] as const))(
    '%s',
    async (_, family, index) => {
      for (let mutation = 0; mutation < mutations; mutation++) {
        const random = new Random(seed + index * 1000 + mutation);
        const bytes = family.make(random);
        const options = family.limits ? { limits: family.limits } : {};
        const refusal = await checkArchive(pieces(bytes, random), options).then(
          (summary) => new Error(`accepted: ${JSON.stringify(summary)}`),
          (error: Error) => error,
        );
        if (!(refusal instanceof ArchiveRefused)) throw new Error(`mutation ${mutation}: ${refusal.stack}`);
        expect(family.rules).toContain(refusal.rule);
        expect(refusal.message).toMatch(/^The archive is refused: /);
        // eslint-disable-next-line no-control-regex
        expect(refusal.message).not.toMatch(/[\u0000-\u001f]/);
        const big = ['compressed_size', 'expanded_size', 'ratio', 'entries'].includes(refusal.rule);
        expect(refusal.status).toBe(big ? 413 : 422);

        const file = join(root, 'in.tgz');
        await writeFile(file, bytes);
        await expect(extractArchive(file, join(root, 'out'), options)).rejects.toMatchObject({
          rule: refusal.rule,
        });
        // No folder of ours, nothing beside it, nothing written after the rejection.
        expect(await readdir(root)).toEqual(['in.tgz']);
      }
    },
    30_000 + mutations * 1_000,
  );
});
