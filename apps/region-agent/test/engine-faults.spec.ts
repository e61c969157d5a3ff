import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BuildSpec } from '@nebo/contracts';
import { parseAllowList } from '@nebo/safe-net';
import { BuildFailure } from '../src/builds/tree.js';
import { type LogWriter } from '../src/log/log-shipper.js';
import { ContainerBuilds, type ContainerOrder } from '../src/engine/container-builds.js';
import { ContainerEngines, findEngine } from '../src/engine/engines.js';
import { engineSettings } from '../src/engine/settings.js';
import { StepGroups } from '../src/engine/step-groups.js';
import { ImageIntake } from '../src/images/image-intake.js';
import { defaultImageLimits } from '../src/images/image-limits.js';
import { ArtifactCache } from '../src/replicas/artifact-cache.js';
import { eventually, testLog } from './agent-kit.js';
import { EngineDouble } from './engine-double.js';

const limits = { memoryBytes: 2 ** 28, cpus: 1.5, processes: 64, diskBytes: 2 ** 26, wallMs: 20_000 };

describe('builds by an engine that fails', () => {
  let dir: string;
  let double: EngineDouble;
  let builds: ContainerBuilds;
  let output: string[];
  let stop: AbortController;
  let wallMs: number;

  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'nebo-faults-'));
    await mkdir(join(dir, 'run'));
    await mkdir(join(dir, 'context'));
    await writeFile(join(dir, 'context/Dockerfile'), 'FROM scratch\nARG A\nCOPY . /\nCMD ["/x"]\n');
    double = await EngineDouble.make();
    await double.up();
    output = [];
    stop = new AbortController();
    wallMs = limits.wallMs;
  });
  afterEach(async () => {
    await double.end();
    await rm(dir, { recursive: true });
  });

  const make = () => {
    const engines = new ContainerEngines(engineSettings({ NEBO_CONTAINER_ENGINE: double.socket }), testLog);
    const cache = new ArtifactCache(join(dir, 'images'), 1e9, () => Promise.reject(new Error('unpacked')));
    const intake = new ImageIntake({ cache, fault: () => Promise.resolve(null) });
    builds = new ContainerBuilds({
      ...{ engines, intake, limits: { ...limits, wallMs }, imageLimits: defaultImageLimits },
      ...{ allow: parseAllowList(''), dir: join(dir, 'notes'), tag: 'abc123', log: testLog },
      groups: new StepGroups(null, 'nebo-abc123-engine', join(dir, 'no-groups')),
    });
    return builds;
  };
  const build = (log: Partial<LogWriter> = {}) => {
    const env = [{ name: 'A', value: '1', secret: false }];
    const order: ContainerOrder = {
      ...{ name: 'run1', context: join(dir, 'context'), dir: join(dir, 'run') },
      spec: { env, start_command: null } as unknown as BuildSpec,
      io: {
        log: { line: () => undefined, full: false, drained: async () => undefined, ...log } as LogWriter,
        blobs: { get: () => Promise.reject(new Error('none')), put: async () => undefined },
        signal: stop.signal,
      },
      say: (line) => output.push(line),
      output: (chunk) => output.push(chunk.toString()),
      step: (_name, work) => work(),
    };
    return make().build(order);
  };
  const failed = async (work: Promise<unknown>) => {
    const error = await work.then(
      () => null,
      (reason: unknown) => reason,
    );
    if (!(error instanceof BuildFailure)) throw error;
    return error.message;
  };

  it('one that goes in the middle is said so, and its leavings go once it is back', async () => {
    double.onBuild = async (request, response) => {
      request.resume();
      response.write('{"stream":"Step 1/2 : RUN x"}\n{"stream":" ---> 0123456789ab\\n"}\n');
      await eventually(() => output.join('').includes('0123456789ab'));
      await double.down();
    };
    expect(await failed(build())).toMatch(/^The container engine of this region does not answer any more/);
    expect(await readdir(join(dir, 'notes'))).toHaveLength(1);
    double.images.set('0123456789ab', { tags: [], created: Date.now() });
    await double.up();
    await make().start();
    expect(await readdir(join(dir, 'notes'))).toEqual([]);
    expect(double.calls).toEqual(['DELETE /images/nebo-build/abc123:run1', 'DELETE /images/0123456789ab']);
  }, 30_000);

  it('hands over limits, declared arguments and no way to the host, and removes only what is its own', async () => {
    let query = new URLSearchParams();
    double.containers.set('mine', { created: Date.now() / 1000, extraHosts: ['run1.nebo-build:127.0.0.1'] });
    double.containers.set('other', { created: Date.now() / 1000, extraHosts: [] });
    double.images.set('aaaaaaaaaaaa', { tags: ['web:1'], created: Date.now() });
    double.images.set('bbbbbbbbbbbb', { tags: [], created: Date.now() - 3_600_000 });
    double.onBuild = (request, response, given) => {
      query = given;
      request.resume();
      request.on('end', () =>
        response.end(
          '{"stream":"Step 1/1 : RUN x"}\n{"stream":" ---> aaaaaaaaaaaa\\n"}\n{"stream":" ---> bbbbbbbbbbbb\\n"}\n' +
            '{"errorDetail":{"message":"The command \'x\' returned a non-zero code: 137"}}\n',
        ),
      );
    };
    expect(await failed(build())).toBe(
      "The command 'x' returned a non-zero code: 137. It may have used more than 256 MB of memory.",
    );
    expect(Object.fromEntries(query)).toMatchObject({
      ...{ networkmode: 'none', nocache: '1', forcerm: '1', memory: '268435456', memswap: '268435456' },
      ...{ cpuperiod: '100000', cpuquota: '150000', buildargs: '{"A":"1"}' },
    });
    expect([...query.keys()].filter((key) => /privileged|volume|mount|cap|device|remote/i.test(key))).toEqual(
      [],
    );
    expect(double.calls).toEqual(['DELETE /containers/mine', 'DELETE /images/nebo-build/abc123:run1']);
  }, 30_000);

  it('a build that is cancelled breaks the connection', async () => {
    const ended = new Promise<void>((resolve) => {
      double.onBuild = (request, response) => {
        request.resume();
        response.write('{"stream":"begun\\n"}\n');
        response.on('close', resolve);
      };
    });
    const work = build();
    await eventually(() => output.join('').includes('begun'));
    stop.abort(new Error('not wanted any more'));
    await expect(work).rejects.toThrow('not wanted any more');
    await ended;
  }, 30_000);

  it('one that never ends is ended by the clock', async () => {
    wallMs = 700;
    double.onBuild = (request, response) => {
      request.resume();
      response.write('{"stream":"begun\\n"}\n');
    };
    expect(await failed(build())).toBe('The build took longer than 1 s.');
  }, 30_000);

  it('a huge log comes whole and waits for its reader', async () => {
    const line = `${JSON.stringify({ stream: `${'x'.repeat(1_000)}\n` })}\n`;
    double.onBuild = (request, response) => {
      request.resume();
      for (let count = 0; count < 20_000; count++) response.write(line);
      response.end('{"error":"enough"}');
    };
    let waited = 0;
    const drained = async () => void (waited += 1);
    expect(await failed(build({ full: true, drained }))).toBe('enough.');
    expect(output.filter((part) => part.startsWith('x'))).toHaveLength(20_000);
    expect(waited).toBeGreaterThan(0);
  }, 30_000);

  it.each([
    ['messages that are no JSON', 'hello\n', /engine refused: it tells what is no message/],
    ['an end without an image', '', /engine refused: no such thing/],
  ])(
    '%s',
    async (_name, text, reason) => {
      double.onBuild = (request, response) => {
        request.resume();
        request.on('end', () => response.end(text));
      };
      double.onExport = (_request, response) =>
        response.writeHead(404).end(JSON.stringify({ message: 'no such thing' }));
      expect(await failed(build())).toMatch(reason);
    },
    30_000,
  );

  it.each([
    ['a tar that ends', Buffer.alloc(300, 1), /cannot be read/],
    ['no tar', Buffer.alloc(1_024, 1), /cannot be read/],
    ['an archive without a manifest', Buffer.alloc(1_024), /without its part "manifest\.json"/],
  ])(
    'an export that is %s is refused',
    async (_name, bytes, reason) => {
      double.onBuild = (request, response) => {
        request.resume();
        request.on('end', () => response.end('{"stream":"Successfully built\\n"}\n'));
      };
      double.onExport = (_request, response) => response.end(bytes);
      expect(await failed(build())).toMatch(reason);
    },
    30_000,
  );

  it('is found while it answers, and nothing is found where nothing does', async () => {
    const settings = engineSettings({ NEBO_CONTAINER_ENGINE: double.socket });
    expect(await findEngine(settings)).toMatchObject({ words: 'Docker 1.2.3', kind: 'docker' });
    await double.down();
    expect(await findEngine(settings)).toBeNull();
    expect(await failed(build())).toMatch(/does not answer any more/);
    expect(engineSettings({ NEBO_CONTAINER_ENGINE: 'off' }).sockets).toEqual([]);
    expect(engineSettings({}).sockets).toContain('/var/run/docker.sock');
    expect(() => engineSettings({ NEBO_CONTAINER_ENGINE: 'docker' })).toThrow(/begins with "\/"/);
    for (const network of ['host', 'container:x', 'ns:/proc/1/ns/net', 'a b'])
      expect(() => engineSettings({ NEBO_CONTAINER_ENGINE_NETWORK: network })).toThrow(
        /NEBO_CONTAINER_ENGINE_NETWORK/,
      );
  }, 30_000);
});
