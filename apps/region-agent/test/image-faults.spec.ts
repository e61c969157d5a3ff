import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findBusybox, pageImage, RegistryPart, testImage, testLayer } from '@nebo/test-kit';
import {
  type ArtifactFacts,
  parseImageReference,
  type ReplicaFacts,
  type ReplicaSpec,
} from '@nebo/contracts';
import { findHierarchy } from '../src/drivers/local/cgroups.js';
import { marked } from '../src/system/processes.js';
import { homeTag } from '../src/system/runs.js';
import { bundleAgent } from './agent-bundle.js';
import { eventually, localMissing } from './agent-kit.js';
import { FakeControlPlane } from './fake-control-plane.js';

const busybox = await findBusybox();
const missing = (await localMissing()) ?? busybox.reason;
const hierarchy = await findHierarchy(await readFile('/proc/self/mounts', 'utf8'));

/** The agent as a process of its own, with images: what it leaves when something ends in the wrong way. */
(missing === null ? describe : describe.skip)(
  `image apps that end badly${missing === null ? '' : ` (SKIPPED: ${missing})`}`,
  () => {
    let work: string;
    let plane: FakeControlPlane;
    let registry: RegistryPart;
    const agents: ChildProcess[] = [];

    beforeAll(async () => {
      work = await mkdtemp(join(tmpdir(), 'nebo-image-'));
      await bundleAgent(join(work, 'agent.mjs'));
      plane = await new FakeControlPlane().start();
      registry = await RegistryPart.start();
      start();
    }, 60_000);
    afterAll(async () => {
      for (const agent of agents) agent.kill('SIGKILL');
      await plane?.stop();
      await registry?.stop();
      await rm(work, { recursive: true, force: true });
    });

    const start = () => {
      const env = {
        PATH: process.env['PATH'],
        NEBO_API_URL: plane.url,
        NEBO_REGION_TOKEN: plane.token,
        NEBO_HOME: work,
        NEBO_DRIVERS: 'builds=local,replicas=local,networks=simulated,machines=simulated',
        NEBO_SAFE_NET_ALLOW: registry.address,
      };
      const child = spawn(process.execPath, [join(work, 'agent.mjs')], {
        env,
        stdio: ['ignore', 'ignore', 'inherit'],
      });
      agents.push(child);
      return child;
    };
    const home = () => join(work, 'region-agent');
    const built = async (id: string, reference: string) => {
      plane.want(id, 1, {
        kind: 'build',
        spec: {
          ...{ account_id: 'account', app_id: 'app', app_type: 'backend', source: null, framework: null },
          ...{ nodejs_version: null, root_directory: null, install_command: null, build_command: null },
          ...{ start_command: null, output_directory: null, env: [], log_stream: `build-${id}` },
          image: {
            ...{ reference, name: parseImageReference(reference) },
            ...{ digest: null, stored: null, known_layers: [] },
          },
        },
      });
      return (await plane.see(id, 'success', 30_000)).facts as unknown as ArtifactFacts;
    };
    const want = (id: string, facts: ArtifactFacts, memory_mb: number) => {
      const spec: ReplicaSpec = {
        ...{ account_id: 'account', app_id: 'app', build_id: 'build', artifact: facts.artifact, image: true },
        ...{ start_command: '', vcpu: 1, memory_mb, readiness_path: '', ready_timeout_ms: 15_000 },
        ...{ env: [], log_stream: `replica-${id}` },
      };
      plane.want(id, 1, { kind: 'replica', spec });
    };
    const page = async (id: string) => {
      const { host, port } = plane.latest(id)!.facts as unknown as ReplicaFacts;
      return (await fetch(`http://${host}:${port}/`)).text();
    };
    /** What is left on the host of this agent's sandboxes: mounts, namespaces, groups, processes, folders. */
    const leftOnHost = async () => {
      const tag = homeTag(home());
      const spaces = await readdir('/run/netns').catch(() => []);
      const roots = [...new Set(Object.values(hierarchy?.roots ?? {}))];
      const groups = await Promise.all(roots.map((root) => readdir(root).catch(() => [])));
      return {
        mounts: (await readFile('/proc/self/mounts', 'utf8'))
          .split('\n')
          .filter((line) => line.includes(work)),
        spaces: spaces.filter((name) => name.includes(tag)),
        groups: groups.flat().filter((name) => name.includes(tag)),
        processes: await marked((mark) => mark.startsWith(`${tag}:`)),
        runs: await readdir(join(home(), 'runs')),
      };
    };

    (hierarchy ? it : it.skip)(
      'one that takes more memory than it has is ended, and that is the reason',
      async () => {
        const hungry = testImage({
          layers: [
            testLayer([
              { path: 'bin/' },
              { path: 'bin/busybox', mode: 0o755, bytes: busybox.found! },
              { path: 'bin/sh', type: 'symlink', target: '/bin/busybox' },
            ]),
          ],
          // `tail` keeps the last line, and this one never ends.
          config: {
            Env: ['PATH=/bin'],
            Cmd: ['/bin/sh', '-c', 'echo begins; busybox tail -n 1 /dev/zero; exit $?'],
          },
        });
        want('hungry', await built('hungry-build', registry.push('ann/hungry', 'v1', hungry)), 64);
        const { reason } = await plane.see('hungry', 'failed', 40_000);
        expect(reason).toMatch(/used more than its 64 MB of memory/);
        plane.forget('replica', 'hungry');
      },
      90_000,
    );

    it('kill -9 of the agent: the next one serves it again without a registry; nothing is left behind', async () => {
      const reference = registry.push('ann/page', 'v1', pageImage(busybox.found!, 'still here'));
      const facts = await built('page-build', reference);
      want('page', facts, 128);
      await plane.see('page', 'ready');
      expect(await page('page')).toBe('still here');
      registry.remove('ann/page');

      agents.at(-1)!.kill('SIGKILL');
      plane.observed.length = 0;
      const second = start();
      await plane.see('page', 'ready', 30_000);
      expect(await page('page')).toBe('still here');
      // One sandbox, not two: what the killed agent had started is gone with its mounts.
      expect((await readdir(join(home(), 'runs'))).filter((name) => name.endsWith('.json'))).toHaveLength(1);
      const { mounts } = await leftOnHost();
      expect(mounts).toEqual([]);

      second.kill('SIGTERM');
      await new Promise((resolve) => second.once('exit', resolve));
      await eventually(async () => (await leftOnHost()).processes.length === 0);
      expect(await leftOnHost()).toEqual({ mounts: [], spaces: [], groups: [], processes: [], runs: [] });
    }, 90_000);
  },
);
