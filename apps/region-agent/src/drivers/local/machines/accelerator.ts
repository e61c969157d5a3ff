import { spawn } from 'node:child_process';
import { access, constants, mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type MachineSpec } from '@nebo/contracts';
import { type AgentLog } from '../../../agent-log.js';
import { type DirectBoot, type ImageStore } from './image-store.js';
import { type Accelerator } from './qemu.js';

/** What the tiny image says first (tools/tiny-image/guest/init). */
const firstWord = 'tiny: up';
const probeImage = 'tiny-1.qcow2';

export interface AcceleratorChoice {
  store: ImageStore;
  /** Chosen by somebody: nothing is probed. */
  fixed?: Accelerator | undefined;
  runRoot: string;
  log: AgentLog;
}

/** A function that chooses when it is first called, and remembers. */
export function chooseOnce({ store, fixed, runRoot, log }: AcceleratorChoice): () => Promise<Accelerator> {
  let chosen: Promise<Accelerator> | null = fixed ? Promise.resolve(fixed) : null;
  const choose = async () => {
    const boot = await bootOf(store);
    const found = await chooseAccelerator(boot, (sha256) => store.path(sha256), `${runRoot}/accelerator`);
    log.info({ accelerator: found }, 'machines are run by this accelerator');
    return found;
  };
  return () => (chosen ??= choose());
}

/** How the small guest of the probe is started; null when the region does not have it. */
async function bootOf(store: ImageStore): Promise<DirectBoot | null> {
  const none = { get: () => Promise.reject(new Error('none')), put: () => Promise.resolve() };
  const image: MachineSpec['image'] = { id: '', filename: probeImage, blob: null };
  return store.image({ image }, none, new AbortController().signal).then(
    ({ boot }) => boot,
    () => null,
  );
}

/**
 * Whether machines can run on the processor itself. That /dev/kvm is there proves nothing: where the host is a machine
 * itself, it may open and run everything so slowly that no kernel comes up. So a small guest is started, and has five
 * seconds to say its first word.
 * @param note file that keeps the answer until the host starts again
 */
async function chooseAccelerator(
  boot: DirectBoot | null,
  file: (sha256: string) => string,
  note: string,
): Promise<Accelerator> {
  const openable = await access('/dev/kvm', constants.R_OK | constants.W_OK).then(
    () => true,
    () => false,
  );
  if (!openable || boot === null) return 'tcg';
  const host = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '');
  const mark = `${host.trim()} ${boot.kernel}`;
  const [known, answer] = (await readFile(note, 'utf8').catch(() => '')).split('\n');
  if (known === mark && (answer === 'kvm' || answer === 'tcg')) return answer;
  const found = (await speaks(boot, file)) ? 'kvm' : 'tcg';
  await mkdir(dirname(note), { recursive: true, mode: 0o700 });
  await writeFile(note, `${mark}\n${found}\n`);
  return found;
}

function speaks(boot: DirectBoot, file: (sha256: string) => string, ms = 5_000): Promise<boolean> {
  const argv = [
    ...['-nodefaults', '-no-user-config', '-display', 'none', '-M', 'q35', '-m', '128M', '-no-reboot'],
    ...['-accel', 'kvm', '-cpu', 'host', '-serial', 'stdio', '-sandbox', 'on,spawn=deny'],
    ...['-kernel', file(boot.kernel), '-initrd', file(boot.initrd), '-append', boot.append],
  ];
  return new Promise((resolve) => {
    const child = spawn('qemu-system-x86_64', argv, {
      stdio: ['ignore', 'pipe', 'ignore'],
      env: { PATH: path },
    });
    let [text, heard] = ['', false];
    const timer = setTimeout(() => child.kill('SIGKILL'), ms);
    child.stdout.on('data', (chunk: Buffer) => {
      text = (text + chunk.toString('latin1')).slice(-10_000);
      if (!text.includes(firstWord)) return;
      heard = true;
      child.kill('SIGKILL');
    });
    child.once('error', () => resolve(false));
    child.once('close', () => {
      clearTimeout(timer);
      resolve(heard);
    });
  });
}

const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
