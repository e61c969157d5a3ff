import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { question, sendUdp } from './ask.js';

/** Path of knotd (Debian package knot), or null. */
export const knotd = ['/usr/sbin/knotd', '/usr/local/sbin/knotd'].find((path) => existsSync(path)) ?? null;

/** A knot of our own, on a free port, with some zones from text. */
export class Knot {
  private constructor(
    readonly port: number,
    private readonly child: ChildProcess,
    private readonly folder: string,
  ) {}

  /** @param zones name with the trailing dot → zone file */
  static async start(zones: ReadonlyMap<string, string>): Promise<Knot> {
    const folder = mkdtempSync(join(tmpdir(), 'nebo-knot-'));
    mkdirSync(join(folder, 'zones'));
    mkdirSync(join(folder, 'run'));
    for (const [name, text] of zones) writeFileSync(join(folder, 'zones', `${name}zone`), text);
    const port = await freePort();
    const config = [
      'server:',
      `    rundir: "${folder}/run"`,
      `    listen: 127.0.0.1@${port}`,
      '    udp-max-payload: 1232',
      '    udp-workers: 1',
      '    tcp-workers: 1',
      'log:',
      '  - target: stderr',
      '    any: error',
      'database:',
      `    storage: "${folder}/run"`,
      'template:',
      '  - id: default',
      `    storage: "${folder}/zones"`,
      '    semantic-checks: off',
      '    zonefile-sync: -1',
      '    zonefile-load: whole',
      '    journal-content: none',
      'zone:',
      ...[...zones.keys()].flatMap((name) => [`  - domain: ${name}`, `    file: "${name}zone"`]),
      '',
    ].join('\n');
    writeFileSync(join(folder, 'knot.conf'), config);
    const child = spawn(knotd!, ['-c', join(folder, 'knot.conf')], { stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    child.stderr!.on('data', (chunk: Buffer) => (said = (said + chunk.toString()).slice(-4_000)));
    const knot = new Knot(port, child, folder);
    try {
      await knot.ready([...zones.keys()], () => said);
    } catch (error) {
      await knot.stop();
      throw error;
    }
    return knot;
  }

  /** The last zone is loaded, and so is every other. */
  private async ready(names: string[], said: () => string): Promise<void> {
    const end = Date.now() + 60_000;
    for (const name of names) {
      for (;;) {
        const answer = await sendUdp(this.port, question(name, { type: 'SOA' }), 500).catch(() => null);
        if (answer && (answer[3]! & 15) === 0) break;
        if (this.child.exitCode !== null || Date.now() > end)
          throw new Error(`knot does not serve ${name}: ${said()}`);
      }
    }
  }

  async stop(): Promise<void> {
    if (this.child.exitCode === null && this.child.signalCode === null) {
      const ended = new Promise((resolve) => this.child.once('exit', resolve));
      this.child.kill('SIGKILL');
      await ended;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}
