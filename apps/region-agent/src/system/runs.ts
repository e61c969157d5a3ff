import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type AgentLog } from '../agent-log.js';
import { descendants, isSame, killMarked, signal, startTime } from './processes.js';

/** What is kept on disk of a run while it lives. */
interface RunRecord {
  kind: 'build' | 'replica' | 'run';
  id: string;
  /** Started processes with their start times. */
  processes: { pid: number; start: string | null; group: boolean }[];
}

/** One start of a build's step or a replica: its name is never used again, so two agents cannot mean the same thing. */
export interface Run {
  name: string;
  /** Value of `NEBO_RUN` in its processes. */
  mark: string;
  /** Folder of its own, 0700. */
  dir: string;
  /** Writes down a process that was just spawned. */
  started(pid: number, group: boolean): void;
  /** Removes record and folder; processes must have ended. */
  forget(): Promise<void>;
}

/** Six hex digits of a home's path: tells one agent's names on the host from another's. */
export function homeTag(home: string): string {
  return createHash('sha256').update(home).digest('hex').slice(0, 6);
}

/**
 * All runs of this agent, on disk with pids and start times, so that the next agent can end what a killed one left.
 */
export class Runs {
  readonly tag: string;

  constructor(
    private readonly home: string,
    private readonly log: AgentLog,
  ) {
    this.tag = homeTag(home);
    mkdirSync(join(home, 'runs'), { recursive: true, mode: 0o700 });
    chmodSync(home, 0o700);
  }

  create(kind: RunRecord['kind'], id: string): Run {
    const name = randomBytes(5).toString('hex');
    const dir = join(this.home, 'runs', name);
    const file = `${dir}.json`;
    const record: RunRecord = { kind, id, processes: [] };
    mkdirSync(dir, { mode: 0o700 });
    // Synchronous: the record has to be there before the event loop can lose control of a spawned process.
    const write = () => {
      writeFileSync(`${file}.new`, JSON.stringify(record), { mode: 0o600 });
      renameSync(`${file}.new`, file);
    };
    write();
    return {
      name,
      mark: `${this.tag}:${name}`,
      dir,
      started: (pid, group) => {
        record.processes = record.processes.filter((known) => isSame(known.pid, known.start));
        record.processes.push({ pid, start: startTime(pid), group });
        write();
      },
      forget: async () => {
        await rm(dir, { recursive: true, force: true });
        rmSync(file, { force: true });
        rmSync(`${file}.new`, { force: true });
      },
    };
  }

  /** Ends every process that an earlier agent of this home left, then removes its folders. */
  async cleanUp(): Promise<void> {
    const names = readdirSync(join(this.home, 'runs'));
    let ended = 0;
    for (const name of names.filter((entry) => entry.endsWith('.json'))) {
      for (const { pid, start, group } of this.read(name).processes) {
        if (!isSame(pid, start)) continue;
        const tree = descendants(pid);
        if (group) signal(-pid, 'SIGKILL');
        for (const each of [pid, ...tree]) ended += signal(each, 'SIGKILL') ? 1 : 0;
      }
    }
    ended += await killMarked((mark) => mark.startsWith(`${this.tag}:`));
    for (const name of names) await rm(join(this.home, 'runs', name), { recursive: true, force: true });
    if (ended > 0 || names.length > 0)
      this.log.info({ processes: ended, runs: names.length }, 'ended what an earlier agent left');
  }

  private read(name: string): RunRecord {
    try {
      return JSON.parse(readFileSync(join(this.home, 'runs', name), 'utf8')) as RunRecord;
    } catch {
      return { kind: 'replica', id: '', processes: [] };
    }
  }
}
