import { readdir, readFile, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { type ReplicaFacts } from '@nebo/contracts';
import { findHierarchy } from '../src/drivers/local/cgroups.js';
import { homeTag } from '../src/system/runs.js';
import { eventually, localMissing, stage, type Stage } from './agent-kit.js';
import { buildOf, helloServer, replicaOf } from './sources.js';

const missing = await localMissing();
const hierarchy = missing ? null : await findHierarchy(await readFile('/proc/self/mounts', 'utf8'));
const limited = hierarchy ? it : it.skip;

(missing ? describe.skip : describe)(
  `hostile builds and replicas, local driver${missing ? ` (SKIPPED: ${missing})` : ''}`,
  () => {
    let on: Stage;
    const canary = createServer((_, response) => response.end('canary'));
    let canaryPort = 0;
    let visits = 0;
    beforeAll(async () => {
      on = await stage('local', {
        wallMs: 8_000,
        diskBytes: 64 * 1024 * 1024,
        processes: 100,
        memoryBytes: 256 * 1024 * 1024,
      });
      await new Promise<void>((resolve) => canary.listen(0, '0.0.0.0', resolve));
      canary.on('connection', () => visits++);
      canaryPort = (canary.address() as AddressInfo).port;
    }, 30_000);
    afterAll(async () => {
      await on.end();
      canary.close();
      canary.closeAllConnections();
    });
    const build = async (id: string, command: string) => {
      on.plane.want(id, 1, await buildOf(on.plane, id, { 'index.html': 'x' }, { build_command: command }));
    };
    const output = (id: string) => on.plane.lines(`build-${id}`).join('\n');

    it('a fork bomb stays below the limit of processes and ends', async () => {
      await build(
        'bomb',
        `bomb() { bomb | bomb & }; for i in $(seq 300); do sleep 100 & done; bomb; sleep 100`,
      );
      const before = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).length;
      const seen = await on.plane.see('bomb', 'error', 40_000);
      expect(seen.reason).toMatch(
        /^build: .*(exited with code|started more than 100 processes|took longer than 8 s)/,
      );
      await eventually(
        async () => (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).length < before + 60,
      );
    }, 60_000);

    it('a large write is cut, in one file or in many', async () => {
      await build('file', 'head -c 1000000000 /dev/zero > big; sleep 100');
      await build('files', 'for i in $(seq 100); do head -c 10000000 /dev/zero > f$i; done; sleep 100');
      for (const id of ['file', 'files'])
        expect((await on.plane.see(id, 'error', 40_000)).reason).toMatch(/wrote more than 64 MB/);
    }, 60_000);

    limited(
      'memory is bounded',
      async () => {
        await build('memory', `node -e "const a = []; for (;;) a.push(Buffer.alloc(20e6, 1))"`);
        expect((await on.plane.see('memory', 'error', 40_000)).reason).toMatch(
          /used more than 256 MB of memory/,
        );
      },
      60_000,
    );

    it('endless sleep, also in the background and in a session of its own, is cut by the clock', async () => {
      await build('sleep', 'setsid sleep 7771 & sleep 7772');
      expect((await on.plane.see('sleep', 'error', 40_000)).reason).toMatch(/took longer than 8 s/);
      expect(await commandLines()).not.toMatch(/sleep.777/s);
    }, 60_000);

    it('sees its own processes only, and neither home nor project nor root’s files nor capabilities', async () => {
      await build(
        'look',
        [
          'echo "pids: $(ls /proc | grep -c "^[0-9]")"',
          'ls -A /root /work /home /var /mnt /opt 2>&1',
          'cat /etc/shadow /proc/1/environ /proc/kcore 2>&1 | head -3',
          'id; grep -i ^cap /proc/self/status; grep NoNewPrivs /proc/self/status',
          'mount -t tmpfs none /mnt 2>&1; touch /usr/x /etc/x /x 2>&1; echo 1 > /proc/sysrq-trigger',
          'env | sort; ls /sys /dev; kill -9 1; echo "still $?"',
          `cat /proc/1/cmdline | tr '\\0' ' '`,
          'exit 5',
        ].join('\n'),
      );
      await on.plane.see('look', 'error');
      const seen = output('look');
      expect(Number(/pids: (\d+)/.exec(seen)![1])).toBeLessThan(12);
      expect(seen).toMatch(/cannot access '\/root'/);
      expect(seen).toMatch(/cannot access '\/work'/);
      expect(seen).toMatch(/uid=[2-4]\d{5}/);
      expect(seen).toMatch(/CapEff:\s0000000000000000/);
      expect(seen).toMatch(/CapBnd:\s0000000000000000/);
      expect(seen).toMatch(/NoNewPrivs:\s1/);
      expect(seen).not.toContain(on.home);
      expect(seen).not.toContain(on.plane.token);
      expect(seen).not.toMatch(/^root:/m);
      expect(seen).toMatch(/Read-only file system/);
    });

    it('a build reaches neither a listener on the host nor anything else', async () => {
      const addresses = [
        '127.0.0.1',
        ...Object.values(networkInterfaces()).flatMap((all) =>
          all!.filter((one) => one.family === 'IPv4').map((one) => one.address),
        ),
      ];
      await build(
        'net',
        addresses
          .map(
            (address) =>
              `node -e "fetch('http://${address}:${canaryPort}').then(() => console.log('REA' + 'CHED'), (e) => console.log('no: ' + e.cause.code))"`,
          )
          .join('; ') + '; exit 5',
      );
      await on.plane.see('net', 'error');
      expect(output('net')).toContain('no: ');
      expect(output('net')).not.toContain('REACHED');
      expect(visits).toBe(0);
    });

    it('a replica answers, but reaches neither the host’s services nor another replica', async () => {
      const spy = `
      const net = require('net');
      const look = (host, port) => new Promise((done) => { const s = net.connect({ host, port, timeout: 1500 }); s.on('connect', () => done('REACHED')); s.on('error', (e) => done(e.code)); s.on('timeout', () => done('timeout')); });
      require('http').createServer(async (q, r) => { const [host, port] = q.url.slice(1).split(','); r.end(port ? await look(host, +port) : 'up'); }).listen(process.env.PORT, process.env.HOST);`;
      for (const id of ['one', 'two']) on.plane.want(id, 1, await replicaOf(on.plane, id, spy));
      const [one, two] = (await Promise.all(['one', 'two'].map((id) => on.plane.see(id, 'ready')))).map(
        (seen) => seen.facts as unknown as ReplicaFacts,
      );
      const ask = async (target: string) =>
        (await fetch(`http://${one!.host}:${one!.port}/${target}`)).text();
      expect(await ask('')).toBe('up');
      const host = one!.host.replace(/\d+$/, (last) => String(Number(last) - 1));
      const others = Object.values(networkInterfaces()).flatMap((all) =>
        all!.filter((one_) => one_.family === 'IPv4' && !one_.internal).map((one_) => one_.address),
      );
      for (const target of [
        `${host},${canaryPort}`,
        `127.0.0.1,${canaryPort}`,
        `${two!.host},${two!.port}`,
        '169.254.169.254,80',
        '1.1.1.1,53',
        ...others.map((address) => `${address},${canaryPort}`),
      ])
        expect([target, await ask(target)]).toEqual([target, expect.not.stringContaining('REACHED')]);
      expect(visits).toBe(0);
      for (const id of ['one', 'two']) on.plane.forget('replica', id);
      await Promise.all(['one', 'two'].map((id) => on.plane.see(id, 'gone')));
    }, 60_000);

    it('variables of a running replica are a file of its own user alone, and no argument', async () => {
      const env = [{ name: 'TOKEN', value: 'tok-of-replica', secret: true }];
      on.plane.want('holder', 1, await replicaOf(on.plane, 'holder', helloServer, { env }));
      await on.plane.see('holder', 'ready');
      const holding: string[] = [];
      for (const entry of await readdir(on.home, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile()) continue;
        const path = join(entry.parentPath, entry.name);
        // Files that are there for a moment only may be gone by now.
        if (!(await readFile(path, 'latin1').catch(() => '')).includes('tok-of-replica')) continue;
        const { mode, uid } = await stat(path);
        holding.push(`${entry.name} ${(mode & 0o777).toString(8)} ${uid > 0}`);
      }
      expect(holding).toEqual(['env 400 true']);
      // Every user of the host may read how a process was called.
      for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name)))
        expect(await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '')).not.toContain(
          'tok-of-replica',
        );
      on.plane.forget('replica', 'holder');
    });

    limited(
      'a replica that takes too much memory is ended with the reason',
      async () => {
        const greedy = `require('http').createServer((q, r) => { r.end('x'); if (q.url === '/eat') { const a = []; setInterval(() => a.push(Buffer.alloc(20e6, 1)), 5); } }).listen(process.env.PORT, process.env.HOST)`;
        on.plane.want('greedy', 1, await replicaOf(on.plane, 'greedy', greedy, { memory_mb: 128 }));
        const { host, port } = (await on.plane.see('greedy', 'ready')).facts as unknown as ReplicaFacts;
        await fetch(`http://${host}:${port}/eat`);
        expect((await on.plane.see('greedy', 'starting')).reason).toMatch(
          /^used more than its 128 MB of memory/,
        );
        on.plane.forget('replica', 'greedy');
        await on.plane.see('greedy', 'gone');
      },
      60_000,
    );

    it('writes into the log, but neither forges lines of others nor breaks the stream', async () => {
      await build(
        'inject',
        `printf 'a\\rdata: forged\\r\\nevent: done\\0\\n'; head -c 200000 /dev/zero | tr '\\0' x; echo; exit 5`,
      );
      await on.plane.see('inject', 'error');
      const lines = on.plane.lines('build-inject');
      expect(lines.every((line) => !/[\r\n\0]/.test(line) && line.length <= 65_536)).toBe(true);
      expect(lines.join('')).toContain('x'.repeat(200_000));
    });

    it('leaves nothing on the host: no namespace, group, process or folder', async () => {
      await eventually(async () => (await readdir(join(on.home, 'runs'))).length === 0);
      // What it keeps ready for the next start goes with it.
      await on.agent.stop();
      expect(await readdir(join(on.home, 'slots'))).toEqual([]);
      const tag = homeTag(on.home);
      expect((await readdir('/run/netns').catch(() => [])).filter((name) => name.includes(tag))).toEqual([]);
      if (hierarchy?.version === 1) {
        const left = await readdir(hierarchy.roots.pids);
        expect(left.filter((name) => name === `nebo-${tag}`)).toEqual([]);
      }
    });
  },
);

async function commandLines(): Promise<string> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  return (
    await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '')))
  ).join('\n');
}
