import { mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { findBusybox, pageImage, RegistryPart, testImage, testLayer, type TestImage } from '@nebo/test-kit';
import {
  type ArtifactFacts,
  type BuildSpec,
  type ImageSource,
  type ReplicaFacts,
  type ReplicaSpec,
  parseImageReference,
} from '@nebo/contracts';
import { eventually, localMissing, stage, type Stage } from './agent-kit.js';
import { plain, secret } from './sources.js';

const busybox = await findBusybox();
const missing = (await localMissing()) ?? busybox.reason;

const imageBuild = (
  id: string,
  image: Partial<ImageSource> & { reference: string },
  more: Partial<BuildSpec> = {},
) => ({
  kind: 'build' as const,
  spec: {
    ...{ account_id: 'account', app_id: 'app', app_type: 'backend', source: null, framework: null },
    ...{ nodejs_version: null, root_directory: null, install_command: null, build_command: null },
    ...{ start_command: null, output_directory: null, env: [], log_stream: `build-${id}` },
    image: {
      ...{ name: parseImageReference(image.reference), digest: null, stored: null, known_layers: [] },
      ...image,
    },
    ...more,
  },
});

(missing === null ? describe : describe.skip)(
  `image apps${missing === null ? '' : ` (SKIPPED: ${missing})`}`,
  () => {
    let on: Stage;
    let registry: RegistryPart;
    let made = 0;

    beforeAll(async () => {
      registry = await RegistryPart.start();
      process.env['NEBO_SAFE_NET_ALLOW'] = registry.address;
      on = await stage('local');
    }, 60_000);
    afterAll(async () => {
      await on?.end();
      await registry?.stop();
    });

    const built = async (
      reference: string,
      more: Partial<BuildSpec> = {},
      image: Partial<ImageSource> = {},
    ) => {
      const id = `b${(made += 1)}`;
      on.plane.want(id, 1, imageBuild(id, { reference, ...image }, more));
      return (await on.plane.see(id, 'success')).facts as unknown as ArtifactFacts;
    };
    /** What it said itself; lines come a moment after readiness. */
    const logged = (stream: string, count: number) =>
      eventually(() => {
        const own = on.plane.lines(stream).filter((line) => !line.startsWith('nebo: '));
        return own.length >= count ? own : null;
      });
    const started = async (facts: ArtifactFacts, more: Partial<ReplicaSpec> = {}) => {
      const id = `r${(made += 1)}`;
      const spec: ReplicaSpec = {
        ...{ account_id: 'account', app_id: 'app', build_id: 'build', artifact: facts.artifact, image: true },
        ...{ start_command: facts.start_command ?? '', vcpu: 1, memory_mb: 256, readiness_path: '' },
        ...{ ready_timeout_ms: 15_000, env: [], log_stream: `replica-${id}`, ...more },
      };
      on.plane.want(id, 1, { kind: 'replica', spec });
      const { host, port } = (await on.plane.see(id, 'ready')).facts as unknown as ReplicaFacts;
      return { id, log: (count = 1) => logged(`replica-${id}`, count), url: `http://${host}:${port}`, port };
    };
    const shellImage = (
      more: Record<string, unknown>,
      entries = [] as Parameters<typeof testLayer>[0] & object[],
    ): TestImage =>
      testImage({
        layers: [
          testLayer([
            { path: 'bin/' },
            { path: 'bin/busybox', mode: 0o4755, bytes: busybox.found! },
            { path: 'bin/sh', type: 'symlink', target: '/bin/busybox' },
            {
              path: 'etc/passwd',
              bytes: 'root:x:0:0:root:/root:/bin/sh\nweb:x:101:101:web:/srv:/bin/false\n',
            },
            { path: 'srv/' },
            ...entries,
          ]),
        ],
        config: { ExposedPorts: { '80/tcp': {} }, ...more },
      });

    it('an image without a shell answers at the port that it exposes', async () => {
      const facts = await built(registry.push('ann/page', 'one', pageImage(busybox.found!, '<h1>one</h1>')));
      expect(facts).toMatchObject({ artifact_kind: 'server', start_command: null, stack: 'image' });
      expect(facts.image!.layers).toHaveLength(2);
      const { url, port } = await started(facts);
      expect(port).toBe(80);
      expect(await (await fetch(url)).text()).toBe('<h1>one</h1>');
    }, 60_000);

    it('entrypoint, command, variables, folder and user are the image’s; what it writes stays in its own memory', async () => {
      const script = [
        'echo "args $*; $GREETING $TOKEN; in $(pwd); $(busybox whoami) home $HOME"',
        'echo bits $(busybox stat -c %a /bin/busybox) $(busybox id -u) caps $(busybox grep CapEff /proc/self/status)',
        'echo changed > /etc/new && busybox rm /etc/hosts && busybox touch /srv/a /b && echo wrote',
        'busybox dd if=/dev/zero of=/big bs=1M count=400 2>&1 | busybox grep -o "No space left.*"',
        'busybox ls -d /usr /image /home 2>&1',
        'busybox rm /big; exec busybox httpd -f -p $PORT -h /srv',
      ].join('\n');
      const image = shellImage({
        ...{ Entrypoint: ['/bin/sh', '-c', script, 'zero'], Cmd: ['two words', '$HOME'] },
        ...{ Env: ['GREETING=hi all', 'PATH=/bin'], WorkingDir: '/srv', User: 'web' },
      });
      const facts = await built(registry.push('ann/shell', 'v1', image));
      const replica = await started(facts, { env: [secret('TOKEN', 'tok-1234567'), plain('PORT', '8000')] });
      expect(replica.port).toBe(8000);
      const log = (await replica.log(7)).join('\n');
      expect(log).toContain('args two words $HOME; hi all ********; in /srv; web home /srv');
      expect(log).toMatch(/bits 775 \d{6} caps CapEff:\s0{16}/);
      expect(log).toContain('wrote');
      expect(log).toContain('No space left');
      expect(log).toMatch(/\/usr: No such file[^]*\/image: No such file/);
      // Another replica of the same image sees nothing of it.
      const other = await started(facts, {
        start_command: 'ls /etc; exec busybox httpd -f -p $PORT -h /srv',
      });
      expect(await other.log(3)).toEqual(['group', 'hosts', 'passwd']);
    }, 60_000);

    it('a start command runs in an image without a shell too, and a job in it', async () => {
      const facts = await built(registry.push('ann/page', 'two', pageImage(busybox.found!, 'two')));
      const command = 'echo "from $0 at $PORT" && exec /bin/busybox httpd -f -p $PORT -h /www';
      const replica = await started(facts, { start_command: command });
      expect(await (await fetch(replica.url)).text()).toBe('two');
      expect(await replica.log()).toEqual([expect.stringMatching(/^from .*sh at 80$/)]);
      on.plane.want('job', 1, {
        kind: 'run',
        spec: {
          ...{
            account_id: 'account',
            app_id: 'app',
            build_id: 'build',
            artifact: facts.artifact,
            image: true,
          },
          ...{
            command: '/bin/busybox cat /www/index.html; exit 3',
            vcpu: 1,
            memory_mb: 128,
            timeout_ms: 20_000,
          },
          ...{ begun: false, env: [], log_stream: 'run-job' },
        },
      });
      expect(await on.plane.see('job', 'error')).toMatchObject({ facts: { exit_code: 3 } });
      expect(await logged('run-job', 1)).toEqual(['two']);
    }, 60_000);

    it('a crash says what happened; and no mount is left on the host', async () => {
      const image = shellImage({ Cmd: ['/bin/sh', '-c', 'echo no database; exit 4'] });
      const facts = await built(registry.push('ann/crash', 'v1', image));
      on.plane.want('crash', 1, {
        kind: 'replica',
        spec: {
          ...{
            account_id: 'account',
            app_id: 'app',
            build_id: 'build',
            artifact: facts.artifact,
            image: true,
          },
          ...{
            start_command: '',
            vcpu: 1,
            memory_mb: 128,
            readiness_path: '',
            ready_timeout_ms: 15_000,
            env: [],
          },
          log_stream: 'crash',
        },
      });
      const { reason } = await on.plane.see('crash', 'failed');
      expect(reason).toContain('exited with code 4: no database');
      expect(await readFile('/proc/self/mounts', 'utf8')).not.toContain(on.home);
    }, 60_000);

    it('an image that lays links in the way of the sandbox gets its own folders, and nothing of it is loaded as root', async () => {
      const program = '#!/bin/sh\nid -u > /evil-ran; exec busybox true\n';
      const image = shellImage(
        {
          Env: ['PATH=/bin', 'LD_PRELOAD=/evil.so', 'LD_LIBRARY_PATH=/'],
          Cmd: [
            '/bin/sh',
            '-c',
            'busybox ls -ld /dev /proc /.nebo; cat /etc/hostname; busybox ls /evil-ran; exec busybox httpd -f -p 80',
          ],
        },
        [
          { path: 'dev', type: 'symlink', target: '/oldroot/etc' },
          { path: 'proc', type: 'symlink', target: '../../../../etc' },
          { path: '.nebo', type: 'symlink', target: '/tmp' },
          { path: 'tmp', type: 'symlink', target: '/oldroot/tmp' },
          { path: 'etc/ld.so.preload', bytes: '/evil.so\n' },
          { path: 'etc/hostname', type: 'symlink', target: '/oldroot/etc/hostname' },
          { path: 'evil.so', mode: 0o755, bytes: program },
          { path: 'usr/sbin/chroot', mode: 0o755, bytes: program },
          { path: 'bin/setpriv', mode: 0o755, bytes: program },
        ],
      );
      const before = await readFile('/etc/hosts', 'utf8');
      const replica = await started(await built(registry.push('ann/evil', 'v1', image)));
      // How many lines come before it is the loader's business.
      await eventually(() =>
        on.plane.lines(`replica-${replica.id}`).some((line) => line.includes('/evil-ran')),
      );
      const log = (await replica.log()).join('\n');
      expect(log).toMatch(/^d.* \/\.nebo$/m);
      expect(log).toMatch(/^d.* \/dev$/m);
      expect(log).toMatch(/^d.* \/proc$/m);
      expect(log).toContain('/evil-ran: No such file');
      expect(await readFile('/etc/hosts', 'utf8')).toBe(before);
    }, 60_000);

    it.each<[string, () => TestImage, RegExp]>([
      [
        'a layer that leads upwards',
        () => testImage({ layers: [testLayer([{ path: '../../x', bytes: 'x' }])], config: { Cmd: ['x'] } }),
        /^unpack: Layer 1 of 1 .* cannot be unpacked: "\.\.\/\.\.\/x" has a "\.\." in its path/,
      ],
      [
        'a user that it does not know',
        () =>
          testImage({
            layers: [testLayer([{ path: 'a', bytes: 'a' }])],
            config: { Cmd: ['x'], User: 'ghost' },
          }),
        /^unpack: The image is to run as "ghost", which its \/etc\/passwd does not know/,
      ],
      [
        'nothing to start',
        () => testImage({ layers: [testLayer([{ path: 'a', bytes: 'a' }])] }),
        /^pull: The image starts nothing by itself .*set start_command/,
      ],
    ])('an image with %s fails its build with a sentence', async (_, image, why) => {
      const id = `bad${(made += 1)}`;
      on.plane.want(id, 1, imageBuild(id, { reference: registry.push('ann/bad', id, image()) }));
      const { reason } = await on.plane.see(id, 'error');
      expect(reason).toMatch(why);
      expect(on.plane.lines(`build-${id}`).at(-1)).toContain(reason);
    });

    it('a rebuild needs no registry: the stored document and layers are enough, also on a host that has nothing', async () => {
      const reference = registry.push('ann/gone', 'v1', pageImage(busybox.found!, 'kept'));
      const facts = await built(reference);
      registry.remove('ann/gone');
      await rm(join(on.home, 'images'), { recursive: true, force: true });
      await mkdir(join(on.home, 'images'));
      const again = await built(reference, {}, { digest: facts.image!.digest, stored: facts.artifact });
      expect(again).toMatchObject({ artifact: facts.artifact, image: facts.image });
      const { url } = await started(again);
      expect(await (await fetch(url)).text()).toBe('kept');
    }, 60_000);
  },
);

describe('image apps where replicas are plain processes', () => {
  it('the build says that no image runs here', async () => {
    const on = await stage('simulated');
    try {
      on.plane.want('none', 1, imageBuild('none', { reference: 'ann/web:1' }));
      const { reason } = await on.plane.see('none', 'error');
      expect(reason).toBe(
        'pull: This region cannot run images: it runs apps as plain processes (driver simulated).',
      );
    } finally {
      await on.end();
    }
  }, 30_000);
});
