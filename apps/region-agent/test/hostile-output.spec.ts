import { mkdtemp, readdir, readFile, readlink, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { extractArchive } from '@nebo/archive';
import { type ArtifactFacts } from '@nebo/contracts';
import { localMissing, stage, type Stage } from './agent-kit.js';
import { buildOf } from './sources.js';

const missing = await localMissing();

/** What builds may leave behind: in the artifact, in the log, in the cache. */
(missing ? describe.skip : describe)(
  `hostile output of builds, local driver${missing ? ` (SKIPPED: ${missing})` : ''}`,
  () => {
    let on: Stage;
    let work: string;
    beforeAll(async () => {
      work = await mkdtemp(join(tmpdir(), 'nebo-output-'));
      on = await stage('local', { wallMs: 12_000 });
    }, 30_000);
    afterAll(async () => {
      await on.end();
      await rm(work, { recursive: true, force: true });
    });
    const build = async (id: string, command: string, more: object = {}) => {
      const files = { 'index.html': 'x' };
      on.plane.want(id, 1, await buildOf(on.plane, id, files, { build_command: command, ...more }));
    };
    const artifact = async (id: string): Promise<string> => {
      const facts = (await on.plane.see(id, 'success', 40_000)).facts as unknown as ArtifactFacts;
      const dir = join(work, id);
      await extractArchive(Readable.from([on.plane.blobs.get(facts.artifact.sha256)!]), dir);
      return dir;
    };
    const log = (id: string) => on.plane.lines(`build-${id}`).join('\n');

    it('rm -rf of everything removes the build’s own files and nothing else', async () => {
      const before = await readdir('/usr/bin');
      await build(
        'wipe',
        'rm -rf /bin /usr/bin /etc /home /cache /build /tmp 2>/dev/null; ls /usr/bin | wc -l; exit 4',
      );
      expect((await on.plane.see('wipe', 'error', 40_000)).reason).toMatch(/exited with code 4/);
      expect(await readdir('/usr/bin')).toEqual(before);
      expect(on.plane.lines('build-wipe')).toContain(String(before.length));
      await build('after', 'true');
      await on.plane.see('after', 'success', 40_000);
    }, 60_000);

    it('endless output is cut by the clock; its log ends with the reason and is bounded', async () => {
      await build('yes', 'yes "a line that does not end to be written again and again" & sleep 1; yes');
      expect((await on.plane.see('yes', 'error', 90_000)).reason).toMatch(/took longer than 12 s/);
      const lines = on.plane.lines('build-yes');
      expect(lines.at(-1)).toContain('took longer than 12 s');
      expect(lines.join('\n').length).toBeLessThan(40 * 1024 * 1024);
    }, 120_000);

    it('links that lead out, set-uid bits, pipes and devices do not come into the artifact', async () => {
      const commands = [
        'mkdir dist; echo page > dist/index.html',
        'ln -s /etc/passwd dist/passwd; ln -s ../../../../../../etc dist/etc; ln -s / dist/root',
        'ln -s index.html dist/inner; cp /bin/true dist/suid; chmod 6755 dist/suid',
        'mkfifo dist/pipe; mknod dist/null c 1 3 2>/dev/null; true',
      ];
      await build('links', commands.join('\n'), { output_directory: 'dist' });
      const dir = await artifact('links');
      expect((await readdir(dir)).sort()).toEqual(['index.html', 'inner', 'suid']);
      expect(await readlink(join(dir, 'inner'))).toBe('index.html');
      expect((await stat(join(dir, 'suid'))).mode & 0o7777).toBe(0o755);
      expect(log('links')).toMatch(/warning: passwd is left out, it is a link that leads out of the folder/);
    }, 60_000);

    it('an output folder that is swapped for a link is refused', async () => {
      await build('swap', 'rm -rf dist; ln -s /root dist', { output_directory: 'dist' });
      expect((await on.plane.see('swap', 'error', 40_000)).reason).toMatch(
        /is a link that leaves the source/,
      );
    });

    it('the cache of one app never comes to another, also not after a failed build', async () => {
      const files = { 'package.json': JSON.stringify({ dependencies: { next: '16.0.0' } }) };
      const build_command = [
        'echo "had: $(cat $npm_config_cache/mark .next/cache/mark 2>/dev/null | tr \'\\n\' " ")"',
        'mkdir -p .next/cache dist; echo $MARK > .next/cache/mark; echo $MARK > $npm_config_cache/mark',
        'echo $MARK > dist/index.html; ls -la /cache/.. > /dev/null; test "$MARK" != broken',
      ].join('; ');
      const run = async (id: string, app_id: string, mark: string) => {
        const env = [{ name: 'MARK', value: mark, secret: false }];
        const more = { app_id, env, build_command, install_command: 'true', output_directory: 'dist' };
        on.plane.want(id, 1, await buildOf(on.plane, id, files, more));
        await on.plane.see(id, mark === 'broken' ? 'error' : 'success', 40_000);
        return on.plane
          .lines(`build-${id}`)
          .find((line) => line.startsWith('had:'))!
          .trim();
      };
      expect(await run('a1', 'app-a', 'first')).toBe('had:');
      expect(await run('b1', 'app-b', 'other')).toBe('had:');
      expect(await run('a2', 'app-a', 'broken')).toBe('had: first first');
      expect(log('a2')).toContain('NEBO_BUILD_CACHE=off');
      expect(await run('a3', 'app-a', 'third')).toBe('had: first first');
      expect(await run('b2', 'app-b', 'last')).toBe('had: other other');
      expect(on.plane.latest('a3')!.facts['cache_bytes']).toBeGreaterThan(0);
      expect(log('a3')).toMatch(/cache for the next build: [\d.]+ MB \(npm [\d.]+ MB, next/);
      // What is kept is nobody's but the agent's.
      expect((await stat(join(on.home, 'build-cache'))).mode & 0o777).toBe(0o700);
    }, 90_000);

    it('a build reads neither the agent’s home nor the caches of others', async () => {
      const paths = [on.home, `${on.home}/build-cache`, `${on.home}/slots`, '/cache/../build-cache'];
      await build('spy', `${paths.map((path) => `ls -la ${path} 2>&1`).join('; ')}; ls /cache; exit 5`);
      await on.plane.see('spy', 'error', 40_000);
      expect(log('spy').match(/cannot access/g)).toHaveLength(4);
      expect(log('spy')).not.toMatch(/note\.json|data-/);
      expect(
        await readFile(
          join(on.home, 'build-cache', (await readdir(join(on.home, 'build-cache')))[0]!, 'note.json'),
          'utf8',
        ),
      ).toContain('app-');
    }, 60_000);
  },
);
