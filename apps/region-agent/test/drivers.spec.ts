import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { checkArchive } from '@nebo/archive';
import { type ReplicaFacts } from '@nebo/contracts';
import { marked } from '../src/system/processes.js';
import { homeTag } from '../src/system/runs.js';
import { eventually, later, localMissing, stage, type Stage } from './agent-kit.js';
import { blobOf, buildOf, helloServer, plain, replicaOf, secret } from './sources.js';

const missing = await localMissing();
const drivers = ['simulated', 'local'] as const;

for (const driver of drivers) {
  const skip = driver === 'local' && missing !== null;
  const name = skip ? `${driver} driver (SKIPPED: ${missing})` : `${driver} driver`;
  (skip ? describe.skip : describe)(name, () => {
    let on: Stage;
    beforeAll(async () => {
      on = await stage(driver, { wallMs: 60_000 });
    }, 30_000);
    afterAll(async () => {
      await on.end();
      expect(await marked((mark) => mark.startsWith(`${homeTag(on.home)}:`))).toEqual([]);
    });
    const ask = async (id: string, path = '/') => {
      const facts = on.plane.latest(id)!.facts as unknown as ReplicaFacts;
      const answer = await fetch(`http://${facts.host}:${facts.port}${path}`);
      return (await answer.json()) as { hello: string; path: string; pid: number };
    };

    describe('builds', () => {
      it('a static folder: no commands, the files as they are', async () => {
        on.plane.want(
          'static',
          1,
          await buildOf(on.plane, 'static', { 'index.html': '<h1>hi</h1>', 'a/b.css': 'x' }),
        );
        const seen = await on.plane.see('static', 'success');
        expect(seen).toMatchObject({
          generation: 1,
          reason: null,
          facts: { artifact_kind: 'static', start_command: null, stack: 'static' },
        });
        const { sha256 } = (seen.facts as { artifact: { sha256: string } }).artifact;
        const summary = await checkArchive(Readable.from([on.plane.blobs.get(sha256)!]));
        expect(summary.files).toMatchObject({ files: 2, topLevel: ['a', 'index.html'] });
        expect(on.plane.done.has('build-static')).toBe(true);
        expect(on.plane.lines('build-static').join('\n')).toMatch(
          /==> fetch[^]*==> detect[^]*==> package[^]*took/,
        );
      });

      it('equal sources give the same artifact', async () => {
        on.plane.want(
          'again',
          1,
          await buildOf(on.plane, 'again', { 'index.html': '<h1>hi</h1>', 'a/b.css': 'x' }),
        );
        const seen = await on.plane.see('again', 'success');
        expect(seen.facts['artifact']).toEqual(on.plane.latest('static')!.facts['artifact']);
      });

      it('a package with a build script into dist', async () => {
        const files = {
          'package.json': JSON.stringify({ scripts: { build: 'node make.js' } }),
          'make.js': `const fs = require('fs'); fs.mkdirSync('dist'); fs.writeFileSync('dist/index.html', process.env.TITLE + process.version); console.log('made \\u001b[32mgreen\\u001b[0m', process.env.TOKEN)`,
        };
        on.plane.want(
          'dist',
          1,
          await buildOf(on.plane, 'dist', files, {
            env: [plain('TITLE', "it's"), secret('TOKEN', 'tok-123456')],
          }),
        );
        await on.plane.see('dist', 'success', 40_000);
        const log = on.plane.lines('build-dist').join('\n');
        expect(log).toContain('$ npm run build');
        expect(log).toContain('made \u001b[32mgreen\u001b[0m ********');
        expect(log).not.toContain('tok-123456');
      });

      it('a Node server in a workspace folder', async () => {
        const files = {
          'apps/web/package.json': JSON.stringify({ scripts: { start: 'node server.js' } }),
          'apps/web/server.js': helloServer,
          'README.md': 'x',
        };
        on.plane.want(
          'server',
          1,
          await buildOf(on.plane, 'server', files, { root_directory: './apps/web/' }),
        );
        const seen = await on.plane.see('server', 'success');
        expect(seen.facts).toMatchObject({
          artifact_kind: 'server',
          start_command: 'npm start',
          stack: 'node',
        });
      });

      it('a failing command: reason with step and exit code, last lines in the log', async () => {
        const files = { 'package.json': '{"scripts":{"build":"x"}}', 'index.html': '' };
        const commands = { build_command: 'echo before; echo broken >&2; exit 7' };
        on.plane.want('fail', 1, await buildOf(on.plane, 'fail', files, commands));
        const seen = await on.plane.see('fail', 'error');
        expect(seen.reason).toBe('build: "echo before; echo broken >&2; exit 7" exited with code 7.');
        const log = on.plane.lines('build-fail');
        expect(log).toContain('before');
        expect(log).toContain('broken');
        expect(log.at(-1)).toContain('exited with code 7');
        expect(on.plane.done.has('build-fail')).toBe(true);
      });

      it.each([
        [
          'nothing',
          { 'README.md': 'x' },
          {},
          /^detect: Nothing to build or serve was found in the source: looked for package.json/,
        ],
        [
          'climb',
          { 'index.html': 'x' },
          { root_directory: '../..' },
          /^detect: root_directory "..\/.." leaves the source folder/,
        ],
        [
          'backend',
          { 'index.html': 'x' },
          { app_type: 'backend' },
          /^package: This is a backend app, but nothing to start was found/,
        ],
        ['json', { 'package.json': '{' }, {}, /^detect: package.json is not valid JSON/],
        [
          'link',
          { 'package.json': '{}' },
          { build_command: 'ln -s /etc dist', output_directory: 'dist' },
          /^package: output_directory "dist" is a link that leaves/,
        ],
      ])('refuses %s with a sentence', async (id, files, more, reason) => {
        on.plane.want(id, 1, await buildOf(on.plane, id, files as unknown as Record<string, string>, more));
        expect((await on.plane.see(id, 'error')).reason).toMatch(reason);
      });

      it('refuses a source that is no archive', async () => {
        const build = await buildOf(on.plane, 'junk', { 'index.html': 'x' });
        build.spec.source = on.plane.put(Buffer.from('no archive'));
        on.plane.want('junk', 1, build);
        expect((await on.plane.see('junk', 'error')).reason).toMatch(
          /^fetch: The archive is refused: it is not a gzip file/,
        );
      });

      it('cancelled: its processes end, its folder goes', async () => {
        const build = await buildOf(
          on.plane,
          'cancel',
          { 'index.html': '' },
          { build_command: 'echo begun; sleep 1000 & sleep 1000' },
        );
        on.plane.want('cancel', 1, build);
        await eventually(() => on.plane.lines('build-cancel').includes('begun'));
        on.plane.want('cancel', 2, build, true);
        expect(await on.plane.see('cancel', 'cancelled')).toMatchObject({ generation: 2 });
        await eventually(async () => (await readdir(join(on.home, 'runs'))).length === 0);
      });

      it('asked again: a finished build is reported, not made again', async () => {
        const { item } = {
          item: await buildOf(on.plane, 'static', { 'index.html': '<h1>hi</h1>', 'a/b.css': 'x' }),
        };
        const made = on.plane.lines('build-static').length;
        on.plane.want('static', 5, item);
        await eventually(() => on.plane.latest('static')?.generation === 5);
        expect(on.plane.latest('static')).toMatchObject({ state: 'success' });
        expect(on.plane.lines('build-static')).toHaveLength(made);
      });
    });

    describe('replicas', () => {
      it('ready, served over HTTP, log with secrets masked, gone', async () => {
        const env = [plain('GREETING', 'привет "мир"'), secret('KEY', 'very-secret-key')];
        const replica = await replicaOf(on.plane, 'web', helloServer, { env });
        on.plane.want('web', 1, replica);
        const seen = await on.plane.see('web', 'ready');
        expect(seen.facts).toMatchObject({
          isolated: driver === 'local',
          ready_at: expect.any(String) as string,
        });
        expect(await ask('web', '/x?y=1')).toMatchObject({ hello: 'привет "мир"', path: '/x?y=1' });
        await eventually(() => on.plane.lines('replica-web').includes('request /x?y=1'));
        expect(on.plane.lines('replica-web')).toContain('listening, key ********');
        on.plane.want('web', 2, replica, true);
        expect(await on.plane.see('web', 'gone')).toMatchObject({ generation: 2 });
        // Nobody else's machine answers in its place, wherever the host's default route leads.
        const { host, port } = seen.facts as unknown as ReplicaFacts;
        await expect(fetch(`http://${host}:${port}/`)).rejects.toMatchObject({
          cause: { code: driver === 'local' ? 'EHOSTUNREACH' : 'ECONNREFUSED', address: host, port },
        });
        expect(await readdir(join(on.home, 'runs'))).toEqual([]);
      });

      it('one that ends at once is never ready, however often it is started and looked at', async () => {
        const states: (string | null)[] = [];
        const stop = setInterval(() => states.push(on.plane.latest('brief')?.state ?? null), 2);
        on.plane.want(
          'brief',
          1,
          await replicaOf(on.plane, 'brief', 'process.exit(7)', { readiness_path: '' }),
        );
        const { reason } = await on.plane.see('brief', 'failed');
        clearInterval(stop);
        expect(reason).toMatch(/^exited with code 7/);
        expect(states).not.toContain('ready');
        expect(on.plane.latest('brief')!.facts).toMatchObject({ ready_at: null, crashes: 3 });
        on.plane.forget('replica', 'brief');
      });

      it('without a path: ready as soon as the port accepts', async () => {
        const silent = `require('net').createServer(() => undefined).listen(process.env.PORT, process.env.HOST)`;
        on.plane.want('port', 1, await replicaOf(on.plane, 'port', silent, { readiness_path: '' }));
        await on.plane.see('port', 'ready');
        on.plane.forget('replica', 'port');
        // Forgotten without a word: the full comparison ends it.
        await on.plane.see('port', 'gone');
      });

      it('a redirect is ready, 503 is not; the reason says what was found', async () => {
        const redirect = `require('http').createServer((q, r) => r.writeHead(302, { location: 'http://127.0.0.1:1/' }).end()).listen(process.env.PORT, process.env.HOST)`;
        on.plane.want('redirect', 1, await replicaOf(on.plane, 'redirect', redirect));
        const busy = redirect.replace('302', '503');
        on.plane.want(
          'busy',
          1,
          await replicaOf(on.plane, 'busy', busy, { readiness_path: '/health', ready_timeout_ms: 1_500 }),
        );
        await on.plane.see('redirect', 'ready');
        expect((await on.plane.see('busy', 'failed')).reason).toBe(
          'The app was not ready within 2 s: GET /health answered 503.',
        );
        for (const id of ['redirect', 'busy']) on.plane.forget('replica', id);
      });

      it('is looked at ten times a second or more until it is ready', async () => {
        const slow = `let looks = 0; const since = Date.now(); require('http').createServer((q, r) => {
          looks++;
          const ready = Date.now() - since > 2000;
          if (ready) console.log('looks ' + looks);
          r.writeHead(ready ? 200 : 503).end();
        }).listen(process.env.PORT, process.env.HOST)`;
        on.plane.want('slow', 1, await replicaOf(on.plane, 'slow', slow));
        await on.plane.see('slow', 'ready');
        const told = () => /looks (\d+)/.exec(on.plane.lines('replica-slow').join('\n'))?.[1];
        await eventually(() => told() !== undefined);
        // 20 in two seconds; half of it where others have the processor.
        expect(Number(told())).toBeGreaterThan(10);
        on.plane.forget('replica', 'slow');
      });

      it('a crash loop: the pause grows each time, the reason has the end of the log', async () => {
        const fragile = `${helloServer}; setTimeout(() => { console.error('lost the database'); process.exit(4); }, 500);`;
        on.plane.want('loop', 1, await replicaOf(on.plane, 'loop', fragile));
        const pauses = () =>
          on.plane
            .lines('replica-loop')
            .flatMap((line) => /it starts again in ([\d.]+) s/.exec(line)?.[1] ?? [])
            .map(Number);
        await eventually(() => pauses().length >= 3);
        const [one, , three] = pauses();
        expect(three).toBeGreaterThan(one! * 1.5);
        const said = on.plane.observed.filter(({ id, reason }) => id === 'loop' && reason !== null);
        expect(said.at(-1)!.reason).toMatch(
          /^exited with code 4: lost the database; it starts again in .* s\nThe end of its log:\n[^]* {2}lost the database$/,
        );
        on.plane.forget('replica', 'loop');
      });

      it('three crashes before it was ready: failed with code and last line', async () => {
        const crash = `console.log('starting'); console.error('no database'); process.exit(3)`;
        on.plane.want('crash', 1, await replicaOf(on.plane, 'crash', crash));
        expect((await on.plane.see('crash', 'failed')).reason).toBe(
          'exited with code 3: no database\nThe end of its log:\n  starting\n  no database',
        );
        await eventually(
          () => on.plane.lines('replica-crash').filter((line) => line === 'starting').length === 3,
        );
        on.plane.forget('replica', 'crash');
      });

      it('a crash after it was ready: starting with the reason, then ready again', async () => {
        const fragile = helloServer.replace('res.end(', `if (req.url === '/die') process.exit(9); res.end(`);
        on.plane.want('fragile', 1, await replicaOf(on.plane, 'fragile', fragile));
        await on.plane.see('fragile', 'ready');
        await ask('fragile', '/die').catch(() => undefined);
        const seen = await on.plane.see('fragile', 'starting');
        expect(seen.reason).toMatch(/^exited with code 9: .*; it starts again in/);
        await on.plane.see('fragile', 'ready');
        expect(await ask('fragile')).toMatchObject({ hello: 'world' });
        on.plane.forget('replica', 'fragile');
      });

      it('another spec replaces it, the same spec with a new number does not', async () => {
        const replica = await replicaOf(on.plane, 'change', helloServer);
        on.plane.want('change', 1, replica);
        await on.plane.see('change', 'ready');
        const first = on.plane.latest('change')!.facts['started_at'];
        on.plane.want('change', 2, replica);
        await eventually(() => on.plane.latest('change')?.generation === 2);
        expect(on.plane.latest('change')).toMatchObject({ state: 'ready', facts: { started_at: first } });
        const spec = { ...replica.spec, env: [plain('GREETING', 'new')] };
        on.plane.want('change', 3, { kind: 'replica', spec });
        await eventually(
          () => on.plane.latest('change')?.generation === 3 && on.plane.latest('change')?.state === 'ready',
        );
        expect(await ask('change')).toMatchObject({ hello: 'new' });
        on.plane.forget('replica', 'change');
      });

      it('asked to stop: it may finish, and is killed when it will not', async () => {
        const deaf = `process.on('SIGTERM', () => console.log('heard it')); ${helloServer}`;
        on.plane.want('deaf', 1, await replicaOf(on.plane, 'deaf', deaf));
        await on.plane.see('deaf', 'ready');
        on.plane.forget('replica', 'deaf');
        await on.plane.see('deaf', 'gone');
        await eventually(() => on.plane.lines('replica-deaf').includes('heard it'));
        await later(50);
        expect(await readdir(join(on.home, 'runs'))).toEqual([]);
      });

      it('asked to stop behind `npm start`: it has its time there too', async () => {
        const slow = `process.on('SIGTERM', () => setTimeout(() => (console.log('said goodbye'), process.exit()), 400)); ${helloServer}`;
        // With settings of its own it is npm that starts the script.
        const files = {
          'server.js': slow,
          'package.json': '{"scripts":{"start":"node server.js"}}',
          '.npmrc': '',
        };
        const artifact = await blobOf(on.plane, files);
        const more = { artifact, start_command: 'npm start' };
        on.plane.want('polite', 1, await replicaOf(on.plane, 'polite', slow, more));
        await on.plane.see('polite', 'ready');
        on.plane.forget('replica', 'polite');
        await on.plane.see('polite', 'gone');
        await eventually(() => on.plane.lines('replica-polite').includes('said goodbye'));
      });
    });
  });
}
