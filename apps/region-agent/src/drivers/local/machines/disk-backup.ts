import { constants } from 'node:fs';
import { chmod, chown, copyFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type BackupFacts } from '@nebo/contracts';
import { type AgentLog } from '../../../agent-log.js';
import { sleep } from '../../../system/timing.js';
import { GuestAgent } from './guest-agent.js';
import { type KeptMachine, type MachinePaths } from './machine-folder.js';
import { checkStandsOn } from './qcow2-header.js';
import { Qmp } from './qmp.js';
import { runTool } from './run-tool.js';

interface Job {
  id: string;
  status: string;
  error?: string;
}

/** Names of files on their way. */
const target = 'backup.qcow2';
const source = 'backup-source.qcow2';
/** How long a guest may stay frozen: what begins a backup takes milliseconds. */
const frozenMs = 10_000;

/**
 * The disk of a running machine as it is when this begins, compressed. QEMU copies what is about to be overwritten first, so
 * the machine writes on meanwhile.
 * @param turn holds the machine's power still while the backup begins, and no longer
 */
export async function backUpRunning(
  kept: KeptMachine,
  paths: MachinePaths,
  path: string,
  log: AgentLog,
  signal: AbortSignal,
  turn: <T>(work: () => Promise<T>) => Promise<T>,
): Promise<BackupFacts['consistency']> {
  const file = join(paths.jail, target);
  const virtual = `${kept.disk_gb}G`;
  try {
    await rm(file, { force: true });
    await runTool(['qemu-img', 'create', '-q', '-f', 'qcow2', file, virtual], signal, 60_000);
    // QEMU left root behind, and finds the file by the name that it has in its jail.
    await chown(file, kept.uid, kept.uid);
    await chmod(file, 0o600);
    const consistency = await Qmp.with(paths.jobs, async (qmp) => {
      await clear(qmp);
      await qmp.execute('blockdev-add', {
        driver: 'qcow2',
        'node-name': 'backup',
        file: { driver: 'file', filename: `/${target}` },
      });
      try {
        const begin = () =>
          qmp.execute('blockdev-backup', {
            ...{ 'job-id': 'backup', device: 'disk', target: 'backup', sync: 'full', compress: true },
            ...{ 'auto-finalize': true, 'auto-dismiss': false },
          });
        const found = await turn(() => frozenWhile(paths.agent, begin, log, kept.id));
        await concluded(qmp, signal);
        return found;
      } finally {
        await clear(qmp).catch(() => undefined);
      }
    });
    await chown(file, 0, 0);
    await rename(file, path);
    return consistency;
  } finally {
    await rm(file, { force: true });
  }
}

/**
 * The disk of a machine that does not run. It is copied first, so that the machine may be started meanwhile.
 * @param base what the disk was made to stand on
 * @param turn as above
 */
export async function backUpStopped(
  paths: MachinePaths,
  base: string,
  path: string,
  signal: AbortSignal,
  turn: <T>(work: () => Promise<T>) => Promise<T>,
): Promise<BackupFacts['consistency']> {
  const copy = join(paths.dir, source);
  const packed = `${path}.part`;
  try {
    await turn(() => copyFile(paths.disk, copy, constants.COPYFILE_FICLONE));
    await checkStandsOn(copy, base);
    await runTool(['qemu-img', 'convert', '-q', '-f', 'qcow2', '-O', 'qcow2', '-c', copy, packed], signal);
    await rename(packed, path);
    return 'stopped';
  } finally {
    await rm(copy, { force: true });
    await rm(packed, { force: true });
  }
}

/** Ends what a killed agent left half done: its job goes on in QEMU, and its guest may be frozen still. */
export async function clearBackup(paths: MachinePaths, alive: boolean): Promise<void> {
  if (alive) {
    await Qmp.with(paths.jobs, clear);
    // Of a guest that is not frozen nothing changes.
    await GuestAgent.with(paths.agent, (guest) => guest.execute('guest-fsfreeze-thaw', {}, frozenMs));
  }
  await rm(join(paths.jail, target), { force: true });
  await rm(join(paths.dir, source), { force: true });
}

/** Has the guest hold its writes while `work` runs, where its agent can. */
async function frozenWhile(
  agentPath: string,
  work: () => Promise<unknown>,
  log: AgentLog,
  id: string,
): Promise<BackupFacts['consistency']> {
  let done = false;
  const found = await GuestAgent.with(agentPath, async (guest) => {
    try {
      const count = await guest.execute('guest-fsfreeze-freeze', {}, frozenMs);
      done = true;
      await work();
      return typeof count === 'number' && count > 0 ? ('frozen' as const) : ('crash' as const);
    } catch (error) {
      if (done) throw error;
      log.warn({ vm: id, error: String(error) }, 'the guest does not hold its writes for a backup');
      return null;
    } finally {
      // Also after a freeze whose answer came late.
      await guest.execute('guest-fsfreeze-thaw', {}, frozenMs).catch(() => undefined);
    }
  });
  if (!done) await work();
  return found ?? 'crash';
}

/** Waits for the job's end. @throws Error when it failed, or the machine ended */
async function concluded(qmp: Qmp, signal: AbortSignal): Promise<void> {
  for (; ; await sleep(100, signal)) {
    const jobs = (await qmp.execute('query-jobs', {}, 60_000)) as Job[];
    const job = jobs.find(({ id }) => id === 'backup');
    if (!job) throw new Error('the backup’s job is not there any more');
    if (job.status !== 'concluded') continue;
    if (job.error !== undefined) throw new Error(`backup: ${job.error}`);
    return;
  }
}

/** Ends what there is of an earlier backup, one of a killed agent too. */
async function clear(qmp: Qmp): Promise<void> {
  const find = async () =>
    ((await qmp.execute('query-jobs', {}, 60_000)) as Job[]).find(({ id }) => id === 'backup');
  for (const until = Date.now() + 30_000; Date.now() < until; await sleep(50)) {
    const job = await find();
    if (!job) break;
    const command = job.status === 'concluded' ? 'job-dismiss' : 'job-cancel';
    await qmp.execute(command, { id: 'backup' }).catch(() => undefined);
  }
  const nodes = (await qmp.execute('query-named-block-nodes', { flat: true })) as { 'node-name': string }[];
  if (nodes.some((node) => node['node-name'] === 'backup'))
    await qmp.execute('blockdev-del', { 'node-name': 'backup' });
}
