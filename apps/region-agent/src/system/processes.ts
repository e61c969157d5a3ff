import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { sleep } from './timing.js';

/**
 * When a process began, in clock ticks since boot (field 22 of /proc/<pid>/stat), or null when there is none. Pid and start together name a process; a pid alone is used again.
 */
export function startTime(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The command's name may hold spaces and brackets, so fields are counted behind its last bracket.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return fields[0] === 'Z' ? null : (fields[19] ?? null);
  } catch {
    return process.platform === 'linux' ? null : startText(pid);
  }
}

/** The same where there is no /proc (macOS), as `ps` writes it. */
function startText(pid: number): string | null {
  const { stdout } = spawnSync('ps', ['-o', 'lstart=', '-p', String(pid)], { encoding: 'utf8' });
  return stdout?.trim() || null;
}

/** Whether the pid is (still) the process that began then. */
export function isSame(pid: number, start: string | null): boolean {
  return start !== null && startTime(pid) === start;
}

function children(pid: number): number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((task) => {
      const text = readFileSync(`/proc/${pid}/task/${task}/children`, 'latin1').trim();
      return text === '' ? [] : text.split(' ').map(Number);
    });
  } catch {
    return [];
  }
}

/** All processes below a process, parents first; not the process itself. */
export function descendants(pid: number): number[] {
  const found: number[] = [];
  const queue = children(pid);
  while (queue.length > 0 && found.length < 10_000) {
    const next = queue.shift()!;
    found.push(next);
    queue.push(...children(next));
  }
  return found;
}

/** Sends a signal; a process that is gone is fine. A negative pid is a process group. */
export function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    process.kill(pid, name);
    return true;
  } catch {
    return false;
  }
}

/**
 * Asks a tree of processes to stop. What only waits for its command is passed over (a shell, `npm start`): it would die at
 * once, and with it (in a sandbox) everything that had just begun to stop properly. Without /proc the group is asked.
 */
export function askToStop(root: number): void {
  const tree = [root, ...descendants(root)];
  if (process.platform !== 'linux') signal(-root, 'SIGTERM');
  else for (const pid of tree) if (!onlyWaits(pid)) signal(pid, 'SIGTERM');
}

const shells = ['sh', 'dash', 'bash', 'ash', 'busybox', 'zsh'];
/** Package managers run scripts in a shell, end that shell at once, and call themselves by these names. */
const scriptRunner = /^(npm|npx|pnpm|yarn)( |$)/;

function onlyWaits(pid: number): boolean {
  try {
    const name = readFileSync(`/proc/${pid}/comm`, 'latin1').trim();
    // bubblewrap itself only waits too, and ends everything when it goes.
    if (name === 'bwrap') return true;
    return (shells.includes(name) || scriptRunner.test(name)) && children(pid).length > 0;
  } catch {
    return false;
  }
}

/** The variable by which processes of a run are found even after they left their process group. */
export const runMark = 'NEBO_RUN';

/** Pids whose environment carries `NEBO_RUN=<value>` with a value that `matches`. Linux only; elsewhere empty. */
export async function marked(matches: (value: string) => boolean): Promise<number[]> {
  let names: string[];
  try {
    names = await readdir('/proc');
  } catch {
    return [];
  }
  const found = await Promise.all(
    names
      .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
      .map(async (name) => {
        const environ = await readFile(`/proc/${name}/environ`, 'latin1').catch(() => '');
        const line = environ.split('\0').find((entry) => entry.startsWith(`${runMark}=`));
        return line !== undefined && matches(line.slice(runMark.length + 1)) ? Number(name) : null;
      }),
  );
  return found.filter((pid): pid is number => pid !== null);
}

/** Kills marked processes until none is left, at most `ms`. Returns how many were killed. */
export async function killMarked(matches: (value: string) => boolean, ms = 3_000): Promise<number> {
  const killed = new Set<number>();
  const end = Date.now() + ms;
  for (;;) {
    const pids = await marked(matches);
    if (pids.length === 0 || Date.now() > end) return killed.size;
    for (const pid of pids) {
      killed.add(pid);
      signal(pid, 'SIGKILL');
    }
    await sleep(10);
  }
}
