import { mkdtempSync, rmSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root } from '../../start/node-binary.mjs';
import { coldAnswer } from './ask.mjs';

const dist = (path) => import(join(root, 'apps/region-agent/dist', path));

/**
 * The app started by hand in the enclosure that its replicas have, in a network and group that are there already: what a
 * start costs when nobody has to decide, find or make anything.
 * @param {string} folder of the app
 */
export async function byHand(folder) {
  const [
    { startEnclosed },
    { Networks },
    { Slots },
    { Cgroups, findHierarchy },
    { Runs },
    { findToolchain },
  ] = await Promise.all([
    dist('drivers/local/bwrap.js'),
    dist('drivers/local/networks.js'),
    dist('drivers/local/slots.js'),
    dist('drivers/local/cgroups.js'),
    dist('system/runs.js'),
    dist('system/toolchain.js'),
  ]);
  const home = mkdtempSync(join(tmpdir(), 'nebo-by-hand-'));
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const runs = new Runs(home, log);
  const networks = new Networks(runs.tag, new Slots(join(home, 'slots'), runs.tag), null);
  const hierarchy = await findHierarchy(await readFile('/proc/self/mounts', 'utf8'));
  const cgroups = hierarchy && new Cgroups(hierarchy, runs.tag);
  const tools = await findToolchain();
  const memoryBytes = 512 << 20;
  const network = await networks.open(`${process.pid}`);
  const group = await cgroups?.create('by-hand', { memoryBytes, cpus: 1, processes: 512 });
  return {
    /** @returns {Promise<{ ms: number, marks: object }>} from the start of the first process to the first byte of an answer */
    async start() {
      const run = runs.create('replica', 'by-hand');
      let said = '';
      const begun = performance.now();
      const child = await startEnclosed({
        run,
        tools,
        uid: network.slot.uid,
        network: network.namespace,
        group: group ?? null,
        binds: [{ from: folder, to: '/app', writable: false }],
        cwd: '/app',
        env: [{ name: 'PORT', value: '8080', secret: false }],
        command: 'node server.mjs',
        limits: { processes: 512, fileBytes: memoryBytes, tmpBytes: memoryBytes },
        onOutput: (chunk) => (said += chunk),
      });
      let ended = false;
      void child.exited.then(() => (ended = true));
      try {
        for (;;) {
          if (ended) throw new Error(`the app started by hand has ended: ${said}`);
          const answer = await coldAnswer({ host: network.slot.address, port: 8080, headers: {} }).catch(
            () => null,
          );
          if (answer) return { ms: performance.now() - begun, marks: answer.marks };
          await new Promise((done) => setTimeout(done, 2));
        }
      } finally {
        await child.stop(0);
        await run.forget();
      }
    },
    async close() {
      await group?.remove();
      await cgroups?.removeBase();
      await network.close();
      rmSync(home, { recursive: true, force: true });
    },
  };
}
