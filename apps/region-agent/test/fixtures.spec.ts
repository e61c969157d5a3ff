import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { extractArchive } from '@nebo/archive';
import { type ArtifactFacts, type ReplicaFacts } from '@nebo/contracts';
import { type EgressProxy, parseAllowList, startEgressProxy } from '@nebo/safe-net';
import { egressOf } from '../src/index.js';
import { findToolchain } from '../src/system/toolchain.js';
import { eventually, localMissing, stage, type Stage } from './agent-kit.js';
import { type Fixture } from './fixtures/fixture.js';
import { largeFixtures } from './fixtures/large.js';
import { lockFile } from './fixtures/locks.js';
import { refusedFixtures, smallFixtures } from './fixtures/small.js';
import { findRegistry } from './registry.js';
import { buildOf, replicaOf } from './sources.js';

const proof = Boolean(process.env['NEBO_PROOF']);
/** Of a proof, those whose name this pattern finds. */
const only = new RegExp(process.env['NEBO_FIXTURE'] ?? '');
const missing = await localMissing();
const driver = missing === null ? 'local' : 'simulated';
const registry = await findRegistry();
const { go, python } = findToolchain();

function lacks({ needs }: Fixture): string | null {
  if (needs.includes('registry') && registry.missing) return registry.missing;
  if (needs.includes('go') && !go) return 'this machine has no Go';
  if (needs.includes('python') && !python?.pip) return 'this machine has no Python with pip';
  return null;
}

const rows: string[] = [];
/** As it grows: a proof takes long. */
async function writeTable(): Promise<void> {
  const file = process.env['NEBO_PROOF_TABLE'];
  if (file) await writeFile(file, table());
}

/** Sources of every kind are built, started, and asked for their page, on the driver that this machine has. */
describe(`fixtures, ${driver} driver`, () => {
  let on: Stage;
  let proxy: EgressProxy;
  let work: string;
  beforeAll(async () => {
    work = await mkdtemp(join(tmpdir(), 'nebo-fixtures-'));
    proxy = await startEgressProxy({ allow: parseAllowList(registry.allow) });
    on = await stage(driver, {}, egressOf(proxy));
  }, 30_000);
  afterAll(async () => {
    await on?.end();
    await proxy?.stop();
    await rm(work, { recursive: true, force: true });
  }, 60_000);
  afterEach(writeTable);

  const build = async (fixture: Fixture): Promise<ArtifactFacts> => {
    const files = { ...fixture.files, ...(await lockFile(fixture, await mkdtemp(join(work, 'lock-')))) };
    const more = { app_id: fixture.name, ...fixture.spec };
    on.plane.want(fixture.name, 1, await buildOf(on.plane, fixture.name, files, more));
    const seen = await eventually(() => {
      const latest = on.plane.latest(fixture.name);
      return latest && latest.state !== 'building' ? latest : null;
    }, 900_000);
    if (seen.state !== 'success')
      throw new Error(`${seen.reason}\n${on.plane.lines(`build-${fixture.name}`).slice(-300).join('\n')}`);
    return seen.facts as unknown as ArtifactFacts;
  };

  const page = async (fixture: Fixture, facts: ArtifactFacts): Promise<{ text: string; ms: number }> => {
    const [path] = fixture.page;
    if (facts.artifact_kind === 'static') {
      const dir = join(work, fixture.name);
      await extractArchive(Readable.from([on.plane.blobs.get(facts.artifact.sha256)!]), dir);
      return { text: await readFile(join(dir, path, 'index.html'), 'utf8'), ms: 0 };
    }
    const id = `${fixture.name} replica`;
    const more = {
      artifact: facts.artifact,
      start_command: facts.start_command!,
      memory_mb: 512,
      ready_timeout_ms: 60_000,
    };
    const { spec } = await replicaOf(on.plane, id, '');
    on.plane.want(id, 1, { kind: 'replica', spec: { ...spec, ...more, readiness_path: path } });
    const began = Date.now();
    const { host, port } = (await on.plane.see(id, 'ready', 120_000)).facts as unknown as ReplicaFacts;
    const ms = Date.now() - began;
    const text = await (await fetch(`http://${host}:${port}${path}`)).text();
    on.plane.forget('replica', id);
    return { text, ms };
  };

  const fixtures = [...smallFixtures, ...(proof ? largeFixtures : [])].filter(({ name }) => only.test(name));
  for (const fixture of fixtures) {
    const why = lacks(fixture);
    (why === null ? it : it.skip)(
      `${fixture.name}${why === null ? '' : ` (SKIPPED: ${why})`}`,
      async () => {
        const note = (words: string[]) =>
          rows.push(`| ${[fixture.name, fixture.stack, ...words].join(' | ')} |`);
        try {
          const facts = await build(fixture);
          expect(facts.stack).toBe(fixture.stack);
          const { text, ms } = await page(fixture, facts);
          expect(text).toContain(fixture.page[1]);
          const size = `${(facts.artifact.bytes / 1e6).toFixed(1)} MB`;
          note([
            facts.artifact_kind,
            seconds(facts.duration_ms),
            size,
            facts.artifact_kind === 'static' ? '–' : seconds(ms),
            'yes',
          ]);
        } catch (error) {
          note([
            '–',
            '–',
            '–',
            '–',
            `**no**: ${String((error as Error).message)
              .split('\n')[0]!
              .slice(0, 200)
              .replaceAll('|', '/')}`,
          ]);
          throw error;
        }
      },
      1_000_000,
    );
  }

  it.each(refusedFixtures)('$name is refused with a sentence', async ({ name, files, spec, reason }) => {
    on.plane.want(name, 1, await buildOf(on.plane, name, files, spec));
    expect((await on.plane.see(name, 'error', 40_000)).reason).toMatch(reason);
  });
});

const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`;
const table = () =>
  [
    `| source | found as | kind | cold build | artifact | ready after | its page came |`,
    `| --- | --- | --- | --- | --- | --- | --- |`,
    ...rows,
    '',
  ].join('\n');
