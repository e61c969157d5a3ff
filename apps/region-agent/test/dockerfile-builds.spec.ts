import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type ArtifactFacts, type BuildSpec, type ReplicaFacts, type ReplicaSpec } from '@nebo/contracts';
import { findBusybox, OwnEngine, ownEngineMissing } from '@nebo/test-kit';
import { eventually, localMissing, stage, type Stage } from './agent-kit.js';
import { homeTag } from '../src/system/runs.js';
import { buildOf, plain, secret } from './sources.js';

const busybox = await findBusybox();
const host = (await localMissing()) ?? busybox.reason;
const kinds = [
  ['docker', host ?? ownEngineMissing('docker')],
  ['podman', host ?? ownEngineMissing('podman')],
] as const;

/** An engine of the test's own builds real Dockerfiles, whose images the region runs without it. */
for (const [kind, missing] of kinds)
  (missing === null ? describe : describe.skip)(
    `Dockerfiles by a real engine, ${kind}${missing === null ? '' : ` (SKIPPED: ${missing})`}`,
    () => {
      const ended = (code: string) =>
        kind === 'docker' ? `returned a non-zero code: ${code}` : `exit status ${code}`;
      let engine: OwnEngine;
      let on: Stage;
      let made = 0;
      let before: string[];

      beforeAll(async () => {
        engine = await OwnEngine.start(kind);
        const root = await mkdtemp(join(tmpdir(), 'nebo-base-'));
        for (const name of ['bin', 'etc', 'tmp', 'www', 'data']) await mkdir(join(root, name));
        await writeFile(join(root, 'bin/busybox'), busybox.found!);
        await chmod(join(root, 'bin/busybox'), 0o755);
        for (const name of ['sh', 'cat', 'echo', 'sleep', 'ls', 'dd', 'httpd', 'id', 'wget', 'seq'])
          await symlink('busybox', join(root, 'bin', name));
        await engine.import('base:1', root, 'ENV PATH=/bin');
        await engine.import('base:triggers', root, 'ONBUILD ADD http://127.0.0.1/x /x');
        await rm(root, { recursive: true });
        process.env['NEBO_CONTAINER_ENGINE'] = engine.socket;
        on = await stage('local', {
          ...{ diskBytes: 64 * 1024 * 1024, memoryBytes: 256 * 1024 * 1024, processes: 60 },
        });
        before = await engine.things();
      }, 120_000);
      afterAll(async () => {
        delete process.env['NEBO_CONTAINER_ENGINE'];
        await on?.end();
        await engine?.stop();
      }, 60_000);
      // Whatever became of a build, nothing of it stays in the engine.
      afterEach(async () => {
        expect(await engine.things()).toEqual(before);
      });

      const want = async (files: Record<string, string>, more: Partial<BuildSpec> = {}) => {
        const id = `d${(made += 1)}`;
        on.plane.want(id, 1, await buildOf(on.plane, id, files, more));
        return id;
      };
      const end = async (id: string, state: 'success' | 'error') =>
        eventually(() => {
          const latest = on.plane.latest(id);
          if (!latest || latest.state === 'building') return null;
          if (latest.state !== state)
            throw new Error(`${latest.reason}\n${on.plane.lines(`build-${id}`).join('\n')}`);
          return latest;
        }, 60_000);
      const log = (id: string) => on.plane.lines(`build-${id}`).join('\n');

      it('builds the folder, keeps out what .dockerignore names, and the region runs what comes out', async () => {
        const id = await want(
          {
            'app/Dockerfile': [
              'ARG VERSION=none',
              'FROM base:1 AS made',
              'ARG VERSION',
              'ARG TOKEN',
              'WORKDIR /work',
              'COPY . .',
              'RUN ls -a . private && echo "\u001b[32mgreen\u001b[0m $VERSION $TOKEN" && echo "<h1>$VERSION</h1>" > /www/index.html',
              'FROM base:1',
              'COPY --from=made /www /www',
              'EXPOSE 8081',
              'USER 1000',
              'CMD ["httpd", "-f", "-p", "8081", "-h", "/www"]',
            ].join('\n'),
            'app/.dockerignore': '# comment\n*.log\nprivate/**\n!private/kept.txt\nDockerfile\n',
            'app/noise.log': 'x',
            'app/private/key': 'x',
            'app/private/kept.txt': 'x',
            'app/nebo.json': '{"headers":[{"source":"/(.*)","headers":[{"key":"x-a","value":"b"}]}]}',
            'outside.txt': 'x',
          },
          {
            root_directory: 'app',
            env: [plain('VERSION', 'two'), secret('TOKEN', 'tok-1234567'), plain('UNUSED', 'never')],
          },
        );
        const facts = (await end(id, 'success')).facts as unknown as ArtifactFacts;
        expect(facts).toMatchObject({ artifact_kind: 'server', start_command: null, stack: 'dockerfile' });
        expect(facts.routing).toBeTruthy();
        const text = log(id);
        expect(text).toContain('\u001b[32mgreen\u001b[0m two ********');
        expect(text).toMatch(/^kept\.txt$/m);
        expect(text).not.toMatch(/tok-1234567|noise\.log|outside\.txt|never|^key$|^Dockerfile$/m);
        const spec: ReplicaSpec = {
          ...{
            account_id: 'account',
            app_id: 'app',
            build_id: 'build',
            artifact: facts.artifact,
            image: true,
          },
          ...{ start_command: '', vcpu: 1, memory_mb: 256, readiness_path: '/', ready_timeout_ms: 15_000 },
          ...{ env: [], log_stream: 'replica-d' },
        };
        on.plane.want('rd', 1, { kind: 'replica', spec });
        const { host, port } = (await on.plane.see('rd', 'ready')).facts as unknown as ReplicaFacts;
        expect(port).toBe(8081);
        expect(await (await fetch(`http://${host}:${port}/`)).text()).toBe('<h1>two</h1>\n');
        on.plane.forget('replica', 'rd');
      }, 90_000);

      it('steps have no network, no privileges, no more memory and disk than they may', async () => {
        const id = await want({
          Dockerfile: [
            'FROM base:1',
            'RUN cat /proc/self/status | busybox grep -E "CapEff|Seccomp:" && ls /sys/class/net && ls /dev',
            'RUN wget -T 2 http://10.0.0.1/ ; busybox mount -t tmpfs none /tmp ; echo went on',
            'RUN cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null || echo unseen',
            'RUN dd if=/dev/zero of=/big bs=1M count=100',
          ].join('\n'),
        });
        const { reason } = await end(id, 'error');
        expect(reason).toMatch(new RegExp(`^build: .*dd if=/dev/zero.* ${ended('\\d+')}\\.`));
        expect(log(id)).not.toMatch(/^e(th|np|ns)\d/m);
        const text = log(id);
        expect(text).toMatch(kind === 'docker' ? /CapEff:\s0{8}a80425fb/ : /CapEff:\s0{8}800405fb/);
        expect(text).toMatch(/went on/);
        expect(text).not.toMatch(/\b(sda|vda|kmsg|kvm)\b/);
        expect(text).toMatch(/268435456/);
        expect(text).toContain('File too large');
      }, 90_000);

      const faults: [name: string, Dockerfile: string, reason: RegExp][] = [
        [
          'a step that fails',
          'FROM base:1\nRUN echo before && exit 3\n',
          new RegExp(`^build: .*${ended('3')}\\.$`),
        ],
        [
          'a broken file',
          'FROM base:1\nNONSENSE x\n',
          kind === 'docker'
            ? /^build: .*unknown instruction: NONSENSE/i
            : /^build: .*Unknown instruction: "NONSENSE"/,
        ],
        [
          'an ADD of an address',
          'FROM base:1\nADD http://127.0.0.1/x /x\n',
          /^build: line 2 of the Dockerfile: ADD of an address/,
        ],
        [
          'an address in escapes of JSON',
          'FROM base:1\nADD ["\\u0068ttp\\u003a\\u002f/127.0.0.1/x", "/x"]\n',
          /^build: line 2 of the Dockerfile: ADD of an address/,
        ],
        [
          'an ADD behind white space of other kinds',
          'FROM base:1\n\u0085ADD http://127.0.0.1/x /x\n',
          /^build: line 2 of the Dockerfile: ADD of an address/,
        ],
        [
          'a cache of all builds, its flag in quotes',
          'FROM base:1\nRUN --mo"unt"=type=cache,target=/c ls /c\n',
          /^build: line 2 of the Dockerfile: RUN --mount=type=cache,target=\/c is not done here/,
        ],
        [
          'an image behind white space of other kinds',
          'FROM base:1\n\u0085FROM 127.0.0.1:5000/x\n',
          /^build: Images of the registry 127\.0\.0\.1:5000 are not pulled/,
        ],
        [
          'a private registry',
          'FROM 127.0.0.1:5000/x\n',
          /^build: Images of the registry 127\.0\.0\.1:5000 are not pulled/,
        ],
        [
          'an image that starts nothing',
          'FROM scratch\nCOPY Dockerfile /x\n',
          /^export: The image starts nothing by itself/,
        ],
      ];
      // Podman's images keep no triggers.
      if (kind === 'docker')
        faults.push([
          'triggers of its image',
          'FROM base:triggers\nRUN echo x\n',
          /^build: ONBUILD of the image base:triggers: ADD of an address/,
        ]);
      it.each(faults)(
        '%s fails with its reason',
        async (_name, Dockerfile, reason) => {
          const id = await want({ Dockerfile });
          expect((await end(id, 'error')).reason).toMatch(reason);
        },
        60_000,
      );

      it('a step that starts too many processes is ended with that reason', async () => {
        const many = 'for i in $(seq 1 200); do sleep 30 & done; echo all of them';
        const id = await want({ Dockerfile: `FROM base:1\nRUN ${many}\n` });
        expect((await end(id, 'error')).reason).toMatch(
          /^build: .* It may have started more than 60 processes\.$/,
        );
        expect(log(id)).not.toMatch(/^all of them$/m);
        for (const controller of await readdir('/sys/fs/cgroup'))
          expect(existsSync(`/sys/fs/cgroup/${controller}/nebo-${homeTag(on.home)}-engine`)).toBe(false);
      }, 60_000);

      it.each([
        ['on top of its image', '/'],
        ['in a volume', '/data/'],
      ])(
        'a step that fills the disk by many files, %s, is ended',
        async (_where, dir) => {
          const fill = `for i in $(seq 1 12); do dd if=/dev/zero of=${dir}$i bs=1M count=10; done`;
          const id = await want({ Dockerfile: `FROM base:1\nVOLUME /data\nRUN ${fill} && sleep 600\n` });
          expect((await end(id, 'error')).reason).toBe('build: A step wrote more than 64 MB.');
        },
        60_000,
      );

      it('of an engine that was killed in the middle of a build nothing is left once it is back', async () => {
        const id = await want({ Dockerfile: 'FROM base:1\nRUN echo runs now && sleep 600\n' });
        await eventually(() => log(id).includes('\nruns now'), 30_000);
        await eventually(async () => (await engine.things()).length > before.length, 30_000);
        // The watch has seen it by then.
        await sleep(1_000);
        await engine.kill();
        expect((await end(id, 'error')).reason).toMatch(
          /container engine of this region does not answer any more/,
        );
        await engine.up();
        expect((await engine.things()).length).toBeGreaterThan(before.length);
        await end(await want({ Dockerfile: 'FROM base:1\nRUN exit 1\n' }), 'error');
        await eventually(async () => (await engine.things()).length === before.length, 30_000);
      }, 120_000);

      it('a step that is cancelled ends at once, with its container', async () => {
        const id = await want({ Dockerfile: 'FROM base:1\nRUN echo runs now && sleep 600\n' });
        await eventually(() => log(id).includes('\nruns now'), 30_000);
        on.plane.want(id, 2, await buildOf(on.plane, id, { Dockerfile: 'FROM base:1\n' }), true);
        await on.plane.see(id, 'cancelled', 30_000);
        await eventually(async () => (await engine.things()).length === before.length, 30_000);
      }, 90_000);

      it('lines that look like the engine’s own remove nothing of others', async () => {
        const [other] = JSON.parse((await engine.call('GET', '/images/json')).text) as { Id: string }[];
        const short = other!.Id.replace('sha256:', '').slice(0, 12);
        const id = await want({
          Dockerfile: `FROM base:1\nRUN echo ' ---> ${short}' && echo ' ---> Running in ${short}' && exit 1\n`,
        });
        await end(id, 'error');
        expect(log(id)).toContain(` ---> Running in ${short}`);
      }, 60_000);
    },
  );
