import { findBusybox, pageImage, RegistryPart, testImage, testLayer, type TestImage } from '@nebo/test-kit';
import { type ArtifactFacts, type BuildSpec, type ImageSource, type ReplicaFacts, type ReplicaSpec } from '@nebo/contracts';
import { eventually, localMissing, stage, type Stage } from './agent-kit.js';
import { plain, secret } from './sources.js';

const busybox = await findBusybox();
const missing = (await localMissing()) ?? busybox.reason;

const imageBuild = (id: string, image: Partial<ImageSource> & { reference: string }, more: Partial<BuildSpec> = {}) => ({
  kind: 'build' as const,
  spec: {
    ...{ account_id: 'account', app_id: 'app', app_type: 'backend', source: null, framework: null },
    ...{ nodejs_version: null, root_directory: null, install_command: null, build_command: null },
    ...{ start_command: null, output_directory: null, env: [], log_stream: `build-${id}` },
    image: { digest: null, stored: null, known_layers: [], ...image },
    ...more,
  },
});

(missing === null ? describe : describe.skip)(`image apps${missing === null ? '' : ` (SKIPPED: ${missing})`}`, () => {
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

  const built = async (reference: string, more: Partial<BuildSpec> = {}, image: Partial<ImageSource> = {}) => {
    const id = `b${(made += 1)}`;
    on.plane.want(id, 1, imageBuild(id, { reference, ...image }, more));
    return (await on.plane.see(id, 'success')).facts as unknown as ArtifactFacts;
  };
  /** Lines come a moment after readiness. */
  const logged = (stream: string, count: number) =>
    eventually(() => (on.plane.lines(stream).length >= count ? on.plane.lines(stream) : null));
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
  const shellImage = (more: Record<string, unknown>, entries = [] as Parameters<typeof testLayer>[0] & object[]): TestImage =>
    testImage({
      layers: [
        testLayer([
          { path: 'bin/' },
          { path: 'bin/busybox', mode: 0o4755, bytes: busybox.found! },
          { path: 'bin/sh', type: 'symlink', target: '/bin/busybox' },
          { path: 'etc/passwd', bytes: 'root:x:0:0:root:/root:/bin/sh\nweb:x:101:101:web:/srv:/bin/false\n' },
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
    const other = await started(facts, { start_command: 'ls /etc; exec busybox httpd -f -p $PORT -h /srv' });
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
        ...{ account_id: 'account', app_id: 'app', build_id: 'build', artifact: facts.artifact, image: true },
        ...{ command: '/bin/busybox cat /www/index.html; exit 3', vcpu: 1, memory_mb: 128, timeout_ms: 20_000 },
        ...{ begun: false, env: [], log_stream: 'run-job' },
      },
    });
    expect(await on.plane.see('job', 'error')).toMatchObject({ facts: { exit_code: 3 } });
    expect(await logged('run-job', 1)).toEqual(['two']);
  }, 60_000);

  it('a crash says what happened; memory is limited; nothing is left on the host', async () => {
    const image = shellImage({ Cmd: ['/bin/sh', '-c', 'echo no database; exit 4'] });
    const facts = await built(registry.push('ann/crash', 'v1', image));
    on.plane.want('crash', 1, {
      kind: 'replica',
      spec: {
        ...{ account_id: 'account', app_id: 'app', build_id: 'build', artifact: facts.artifact, image: true },
        ...{ start_command: '', vcpu: 1, memory_mb: 128, readiness_path: '', ready_timeout_ms: 15_000, env: [] },
        log_stream: 'crash',
      },
    });
    expect((await on.plane.see('crash', 'failed')).reason).toContain('exited with code 4: no database');
    const mounts = await (await import('node:fs/promises')).readFile('/proc/self/mounts', 'utf8');
    expect(mounts).not.toContain(on.home);
    expect(await eventually(() => true)).toBe(true);
  }, 60_000);
});
