import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BackupFacts, type MachineSpec } from '@nebo/contracts';
import { cacheFolder } from '@nebo/test-kit';
import { probeDrivers } from '../src/index.js';
import { Cgroups, findHierarchy } from '../src/drivers/local/cgroups.js';
import { tool } from '../src/drivers/local/exec.js';
import { LocalMachineDriver } from '../src/drivers/local/machines/driver.js';
import { findQemus } from '../src/drivers/local/machines/qemu.js';
import { uplinkSettings } from '../src/drivers/local/uplink-mode.js';
import { LocalNetworkDriver } from '../src/drivers/local/vpcs.js';
import { homeTag } from '../src/system/runs.js';
import { bundleAgent } from './agent-bundle.js';
import { eventually, testLog } from './agent-kit.js';
import { FakeControlPlane } from './fake-control-plane.js';
import { machineDriverSuite, machineSpec } from './machine-driver-suite.js';
import { Hosts, portOf, specOf } from './network-kit.js';

const images = join(cacheFolder(), 'tiny-image');
const { machines } = await probeDrivers({ NEBO_IMAGES: images });
const missing = machines.driver === 'local' ? null : machines.why;
const groups = await findHierarchy(await readFile('/proc/self/mounts', 'utf8'));
/** A machine without a processor's help, on a host that does other things. */
const bootMs = 120_000;

if (missing === null)
  machineDriverSuite(
    'local',
    async () => {
      const dir = await mkdtemp(join(tmpdir(), 'nebo-vms-'));
      const runRoot = join(dir, 'run');
      const tag = homeTag(dir);
      const make = () =>
        new LocalMachineDriver({ dir, tag, images, taps: null, cgroups: null, log: testLog, runRoot });
      return {
        driver: make(),
        revive: () => Promise.resolve(make()),
        end: async () => {
          expect((await findQemus(`nebo-${tag}-`)).size).toBe(0);
          await rm(dir, { recursive: true, force: true });
        },
      };
    },
    { starts: false },
  );

/** One machine in one VPC, made by an agent of its own process; it is booted four times. */
describe('a real machine', () => {
  let work: string;
  let plane: FakeControlPlane;
  let agent: ChildProcess | null = null;
  let client: string;
  let generation = 0;
  const hosts = new Hosts();
  const [vpc, sideVpc, id] = [randomUUID(), randomUUID(), randomUUID()];
  const [port, other] = [portOf('10.77.0.10', '10'), portOf('10.77.0.20', '20')];
  const [side, sideOther] = [portOf('10.78.0.10', '30'), portOf('10.78.0.20', '40')];
  const run = missing === null ? it : it.skip;

  beforeAll(async () => {
    if (missing !== null) return;
    work = await mkdtemp(join(tmpdir(), 'nebo-real-'));
    await bundleAgent(join(work, 'agent.mjs'));
    plane = await new FakeControlPlane().start();
    start();
  }, 60_000);

  afterAll(async () => {
    if (missing !== null) return;
    await ended();
    const left = (await findQemus(`nebo-${tag()}-`)).values();
    for (const pid of [...left].flat()) process.kill(pid, 'SIGKILL');
    await networks().clear();
    await hosts.remove();
    await plane.stop();
    await rm(work, { recursive: true, force: true });
    await rm(`/run/nebo-machines/${tag()}`, { recursive: true, force: true });
  }, 60_000);

  const home = () => join(work, 'region-agent');
  const tag = () => homeTag(home());
  /** What the audit finds of machines, past any agent's memory. */
  const onHost = () =>
    new LocalMachineDriver({
      ...{ dir: join(home(), 'vms'), tag: tag(), images, taps: null, log: testLog },
      cgroups: groups && new Cgroups(groups, `${tag()}-vm`),
    }).onHost();
  const networks = () =>
    new LocalNetworkDriver({ tag: tag(), uplink: uplinkSettings({ NEBO_UPLINK: 'isolated' }) });
  const start = () => {
    const env = {
      PATH: process.env['PATH'],
      NEBO_API_URL: plane.url,
      NEBO_REGION_TOKEN: plane.token,
      NEBO_HOME: work,
      NEBO_IMAGES: images,
      NEBO_UPLINK: 'isolated',
      NEBO_DRIVERS: 'builds=simulated,replicas=simulated,networks=local,machines=local',
    };
    const stdio = process.env['NEBO_TEST_LOG'] ? 'inherit' : 'ignore';
    agent = spawn(process.execPath, [join(work, 'agent.mjs')], { env, stdio: ['ignore', stdio, 'inherit'] });
  };
  const ended = async () => {
    if (!agent || agent.exitCode !== null || agent.signalCode !== null) return;
    const exit = new Promise((resolve) => agent!.once('exit', resolve));
    agent.kill('SIGKILL');
    await exit;
  };
  const spec = (more: Partial<MachineSpec> = {}) =>
    machineSpec({
      hostname: 'front',
      ssh_keys: ['ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExample me@here'],
      user_data: '#!/bin/sh\necho once >>/data/user-data\ncp /data/user-data /www/user-data\n',
      interfaces: [
        { id: port.id, name: 'main', vpc_id: vpc, mac: port.mac, address: port.address },
        { id: side.id, name: 'side', vpc_id: sideVpc, mac: side.mac, address: side.address },
      ],
      ...more,
    });
  const want = (more: Partial<MachineSpec> = {}, gone = false) =>
    plane.want(id, ++generation, { kind: 'vm', spec: spec(more) }, gone);
  /** What the web server of the machine says, asked from another host of its VPC; null when nobody answers. */
  const ask = async (path: string, body?: string, from = client, at = port) => {
    const how = body === undefined ? '' : `method: 'POST', body: ${JSON.stringify(body)}, `;
    const program = `fetch('http://${at.address}/${path}', { ${how}signal: AbortSignal.timeout(5000) })
      .then((r) => r.text()).then((t) => process.stdout.write(t), () => process.exit(1));`;
    return tool(['ip', 'netns', 'exec', from, process.execPath, '-e', program]).catch(() => null);
  };
  const state = async () => {
    const text = await eventually(() => ask('cgi-bin/state'), bootMs);
    return Object.fromEntries(
      text
        .trim()
        .split('\n')
        .map((line) => line.split(/=(.*)/s).slice(0, 2)),
    ) as Record<string, string>;
  };
  const observed = (word: string, number = generation) =>
    eventually(() => {
      const seen = plane.latest(id);
      return seen?.generation === number && seen.state === word ? seen : null;
    }, bootMs);

  run(
    'boots, answers in its VPC, is backed up, changed, adopted after kill -9, grown, stopped, started, restarted, restored, removed',
    async () => {
      plane.want(vpc, 1, { kind: 'vpc', spec: specOf('10.77.0.0/24', [port, other]) });
      plane.want(sideVpc, 1, { kind: 'vpc', spec: specOf('10.78.0.0/24', [side, sideOther]) });
      await plane.see(vpc, 'active', 60_000);
      await plane.see(sideVpc, 'active', 60_000);
      const networkDriver = networks();
      await networkDriver.start();
      client = await hosts.join(networkDriver, vpc, other);
      const neighbour = await hosts.join(networkDriver, sideVpc, sideOther);

      // First boot. The agent says what the host holds, the guest got its address, name, key and script.
      want();
      expect(await observed('running')).toMatchObject({
        facts: { driver: 'local', real: true, boot: 1, restored: 0, vcpu: 1, memory_mb: 128, disk_gb: 1 },
      });
      expect((await onHost()).map(({ kind }) => kind).sort()).toEqual(
        [...(groups ? ['folder'] : []), 'disk', 'folder', 'process'].sort(),
      );
      expect(plane.capacity).toMatchObject({ vcpu: expect.any(Number), memory_mb: expect.any(Number) });
      const first = await state();
      expect(first).toMatchObject({ hostname: 'front', cpus: '1', content: 'as new' });
      expect(first['keys']).toContain('ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExample');
      expect(await ask('user-data')).toBe('once\n');
      await eventually(() => plane.latest(id)?.facts['guest_agent'] === 'connected', bootMs);
      // It is in both VPCs, and the two do not meet in it.
      await eventually(() => ask('cgi-bin/state', undefined, neighbour, side), bootMs);
      expect(await ask('cgi-bin/state', undefined, neighbour, port)).toBeNull();
      const [qemu] = (await findQemus(`nebo-${tag()}-`)).get(id)!;
      const status = await tool(['cat', `/proc/${qemu}/status`]);
      expect(status).toMatch(/^Uid:\t[5-9]\d{5,}|^Uid:\t1\d{6}/m);
      expect(status).toMatch(/^CapEff:\t0+$/m);
      expect(status).toMatch(/^Seccomp:\t2$/m);

      // A backup of the running machine, frozen for a moment; it goes on and is changed afterwards.
      expect(await ask('cgi-bin/content', 'first')).toBe('first');
      const backup = randomUUID();
      plane.want(backup, 1, { kind: 'backup', spec: { account_id: 'a', vm_id: id } });
      const ready = await plane.see(backup, 'ready', bootMs);
      const { blob, ...made } = ready.facts as unknown as BackupFacts;
      plane.forget('backup', backup);
      expect(made).toEqual({ driver: 'local', real: true, consistency: 'frozen' });
      expect(plane.blobs.get(blob.sha256)).toHaveLength(blob.bytes);
      expect(plane.blobs.get(blob.sha256)!.subarray(0, 4).toString('latin1')).toBe('QFI\xfb');
      expect(await readdir(join(home(), 'backups'))).toEqual([]);
      expect(await ask('cgi-bin/content', 'second')).toBe('second');
      expect((await state())['boot']).toBe(first['boot']);

      // The agent dies without a word: the machine goes on, and the next agent has the same one.
      await ended();
      plane.observed.length = 0;
      expect((await state())['boot']).toBe(first['boot']);
      start();
      expect((await observed('running')).facts).toMatchObject({ boot: 1 });
      expect(plane.observed.filter((seen) => seen.id === id).map((seen) => seen.state)).not.toContain(
        'starting',
      );
      expect((await findQemus(`nebo-${tag()}-`)).get(id)).toEqual([qemu]);

      // A larger disk is there at once.
      want({ disk_gb: 2 });
      expect((await observed('running')).facts).toMatchObject({ disk_gb: 2 });
      expect(await state()).toMatchObject({ disk_bytes: String(2 * 1024 ** 3), boot: first['boot'] });

      // Stopped: nobody answers, nothing runs.
      want({ disk_gb: 2, power: 'stopped' });
      expect((await observed('stopped')).facts).toMatchObject({ started_at: null, guest_agent: null });
      expect((await findQemus(`nebo-${tag()}-`)).size).toBe(0);
      expect(await ask('cgi-bin/state')).toBeNull();

      // Second boot, with more memory: the disk is what it was, the script does not run again.
      want({ disk_gb: 2, memory_mb: 160 });
      expect((await observed('running')).facts).toMatchObject({ memory_mb: 160, boot: 1 });
      const second = await state();
      expect(second).toMatchObject({ content: 'second' });
      expect(second['boot']).not.toBe(first['boot']);
      expect(Number(second['memory_kb'])).toBeGreaterThan(Number(first['memory_kb']));
      expect(await ask('user-data')).not.toBe('once\nonce\n');

      // Third boot: a restart.
      want({ disk_gb: 2, memory_mb: 160, boot: 2 });
      expect((await observed('running')).facts).toMatchObject({ boot: 2 });
      const third = await eventually(async () => {
        const seen = await state();
        return seen['boot'] === second['boot'] ? null : seen;
      }, bootMs);
      expect(third).toMatchObject({ content: 'second' });

      // Fourth boot: what was backed up is back. The disk keeps the size that it was given since.
      want({ disk_gb: 2, memory_mb: 160, boot: 2, restore: { number: 1, blob } });
      expect((await observed('running')).facts).toMatchObject({ restored: 1, disk_gb: 2 });
      expect(await state()).toMatchObject({ content: 'first', disk_bytes: String(2 * 1024 ** 3) });

      // Gone: no process, no file, no door. What nobody ever wrote down goes too.
      const strange = randomUUID();
      await tool(['mkdir', '-p', join(home(), 'vms/disks', strange)]);
      want({}, true);
      await observed('gone');
      expect((await findQemus(`nebo-${tag()}-`)).size).toBe(0);
      await ended();
      start();
      await eventually(() => !existsSync(join(home(), 'vms/disks', strange)), 60_000);
      expect(await readdir(join(home(), 'vms/disks'))).toEqual([]);
      expect(await onHost()).toEqual([]);
      for (const each of [vpc, sideVpc]) {
        const space = networkDriver.namespaceOf(each);
        expect(await tool(['ip', '-n', space, '-br', 'link', 'show', 'type', 'tun'])).toBe('');
      }
    },
    10 * bootMs,
  );
});
