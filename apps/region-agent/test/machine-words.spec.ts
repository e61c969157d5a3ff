import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cacheFolder } from '@nebo/test-kit';
import { probeDrivers } from '../src/index.js';
import { GuestAgent } from '../src/drivers/local/machines/guest-agent.js';
import { confinement } from '../src/drivers/local/machines/qemu.js';
import { Qmp } from '../src/drivers/local/machines/qmp.js';
import { seedImage } from '../src/drivers/local/machines/seed.js';
import { SerialLog } from '../src/drivers/local/machines/serial-log.js';
import { eventually } from './agent-kit.js';
import { machineSpec } from './machine-driver-suite.js';

const { machines } = await probeDrivers({ NEBO_IMAGES: join(cacheFolder(), 'tiny-image') });
const missing = machines.driver === 'local' ? null : machines.why;

describe('what decides on machines', () => {
  it('is the host: the words say what lacks, and who asks for real machines hears it at once', async () => {
    const images = { NEBO_IMAGES: '/nowhere' };
    const { machines: without } = await probeDrivers(images);
    expect(without).toMatchObject({ driver: 'simulated', simulated: true });
    expect(without.why).toMatch(/^states and timings without a machine, because this host lacks: /);
    await expect(probeDrivers({ ...images, NEBO_DRIVERS: 'machines=local' })).rejects.toThrow(
      /^NEBO_DRIVERS asks for machines=local, but this host lacks: /,
    );
    const asked = await probeDrivers({ ...images, NEBO_DRIVERS: 'machines=simulated,networks=simulated' });
    expect(asked.machines.why).toBe('states and timings without a machine, asked for by NEBO_DRIVERS');
  });

  (missing === null ? it : it.skip)('is the network: machines are real only where VPCs are', async () => {
    const env = { NEBO_IMAGES: join(cacheFolder(), 'tiny-image'), NEBO_DRIVERS: 'networks=simulated' };
    const { machines: alone } = await probeDrivers(env);
    expect(alone).toMatchObject({
      driver: 'simulated',
      why: expect.stringContaining('networks by the driver local'),
    });
  });

  it('QEMU is confined by the words that its version knows', () => {
    const words = (major: number, minor: number) => confinement({ major, minor }, '/a,b/jail', 7).join(' ');
    expect(words(7, 2)).toBe('-chroot /a,b/jail -runas 7:7');
    expect(words(9, 0)).toBe('-run-with chroot=/a,,b/jail -runas 7:7');
    expect(words(10, 0)).toBe('-run-with chroot=/a,,b/jail,user=7:7');
  });

  it('the seed is a FAT image in which every file is found whole under its name', () => {
    const text = `#cloud-config\n${'# many words\n'.repeat(9_000)}`;
    const spec = machineSpec({
      hostname: 'front',
      user_data: text,
      install_guest_agent: true,
      ssh_keys: ['ssh-x AAAA'],
    });
    const files = readFat(seedImage('some-id', spec));
    expect([...files.keys()]).toEqual(['CIDATA', 'meta-data', 'user-data', 'vendor-data', 'network-config']);
    expect(files.get('user-data')).toBe(text);
    expect(JSON.parse(files.get('meta-data')!)).toEqual({
      'instance-id': 'some-id',
      'local-hostname': 'front',
      'public-keys': ['ssh-x AAAA'],
    });
    expect(files.get('vendor-data')).toMatch(/^#cloud-config\n/);
    expect(JSON.parse(files.get('vendor-data')!.replace(/^.*\n/, ''))).toMatchObject({
      user: { name: 'me' },
      ssh_authorized_keys: ['ssh-x AAAA'],
      packages: ['qemu-guest-agent'],
    });
    expect(JSON.parse(files.get('network-config')!)).toEqual({ version: 2, ethernets: {} });
  });
});

/** Reads an image as the format's description says it is read: label and files by their long names. */
function readFat(image: Buffer): Map<string, string> {
  const fatAt = image.readUInt16LE(14) * 512;
  const rootAt = fatAt + image.readUInt8(16) * image.readUInt16LE(22) * 512;
  const dataAt = rootAt + image.readUInt16LE(17) * 32;
  const next = (cluster: number) => {
    const pair = image.readUInt16LE(fatAt + Math.floor(cluster * 1.5));
    return cluster % 2 === 0 ? pair & 0xfff : pair >> 4;
  };
  const found = new Map<string, string>();
  let long = '';
  for (let at = rootAt; image[at] !== 0; at += 32) {
    const entry = image.subarray(at, at + 32);
    if (entry[11] === 0x0f) {
      const part = [entry.subarray(1, 11), entry.subarray(14, 26), entry.subarray(28, 32)];
      long = Buffer.concat(part).toString('utf16le').replace(/\0.*$/s, '') + long;
      continue;
    }
    const bytes: Buffer[] = [];
    for (let cluster = entry.readUInt16LE(26); cluster >= 2 && cluster < 0xff8; cluster = next(cluster))
      bytes.push(image.subarray(dataAt + (cluster - 2) * 512, dataAt + (cluster - 1) * 512));
    const text = Buffer.concat(bytes).toString('utf8', 0, entry.readUInt32LE(28));
    found.set(long || entry.toString('latin1', 0, 11).trim(), text);
    long = '';
  }
  return found;
}

describe('what a machine says', () => {
  let dir: string;
  const answering = async (answer: (line: string) => string | null, greeting = '') => {
    const path = join(dir, 'socket');
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.write(greeting);
      socket.on('data', (chunk) => {
        const said = answer(chunk.toString('latin1'));
        if (said !== null) socket.write(Buffer.from(said, 'latin1'));
      });
    });
    await new Promise<void>((resolve) => server.listen(path, resolve));
    return { path, end: () => new Promise((resolve) => server.close(resolve)) };
  };
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'nebo-words-'));
  });
  afterEach(() => rm(dir, { recursive: true, force: true }));

  it('counts as a guest agent only when it answers the question that was asked', async () => {
    for (const [answer, found] of [
      [() => null, null],
      [() => '{"return": 1}\n', null],
      [() => 'not json\n{"return": {}}\n', null],
      [(line: string) => `\xff{"return": ${/"id":(\d+)/.exec(line)![1]}}\n`, 'there'],
    ] as const) {
      const { path, end } = await answering(answer);
      expect(await GuestAgent.with(path, async () => 'there', 300)).toBe(found);
      await end();
    }
    expect(await GuestAgent.with(join(dir, 'nobody'), async () => 'there')).toBeNull();
  });

  it('is not read without end: a line of megabytes ends the connection', async () => {
    const { path, end } = await answering(() => 'x'.repeat(2 << 20));
    expect(await GuestAgent.with(path, async () => 'there', 5_000)).toBeNull();
    await end();
  });

  it('of the monitor, a refusal is an error with QEMU’s words', async () => {
    const { path, end } = await answering((lines) => {
      const answers = lines
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { id: number; execute: string });
      return answers
        .map(({ id, execute }) =>
          execute === 'stop'
            ? `{"id":${id},"error":{"desc":"not now"}}\n`
            : `{"event":"X"}\n{"id":${id},"return":{}}\n`,
        )
        .join('');
    }, '{"QMP":{}}\n');
    await expect(Qmp.with(path, (qmp) => qmp.execute('stop'))).rejects.toThrow('stop: not now');
    expect(await Qmp.with(path, (qmp) => qmp.execute('cont'))).toEqual({});
    await end();
  });

  it('on the serial line is kept bounded, and shown without what a terminal acts on', async () => {
    let socket: Socket | null = null;
    const path = join(dir, 'serial');
    const server = createServer((each) => (socket = each));
    await new Promise<void>((resolve) => server.listen(path, resolve));
    const log = new SerialLog(join(dir, 'log'));
    await log.attach(path);
    await eventually(() => socket);
    for (let index = 0; index < 2_000; index += 1) socket!.write(`${'x'.repeat(1_000)}\r\n`);
    socket!.write('\x1b[31mred\x07 alert\r\n');
    await eventually(() => log.last(1)[0]?.includes('alert'));
    expect(log.last(1)).toEqual(['[31mred alert']);
    const sizes = await Promise.all(
      ['log', 'log.1'].map(async (name) => (await readFile(join(dir, name))).length),
    );
    for (const size of sizes) expect(size).toBeLessThan(400 * 1024);
    log.close();
    server.close();
  });
});
