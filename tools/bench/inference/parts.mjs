/** The processes of the bench and the cores that they run on. */
import { execFileSync, fork } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { cpuSeconds } from '../src/installation.mjs';

const taskset = '/usr/bin/taskset';
export const canPin = existsSync(taskset) && availableParallelism() > 1;

/** Moves a process with all its threads to one core; its later children follow. */
export function pin(pid, core) {
  if (canPin) execFileSync(taskset, ['-a', '-p', '-c', String(core), String(pid)], { stdio: 'ignore' });
}

/** A child of the bench that is asked by messages, one question after the other or with an id. */
class Asked {
  constructor(file, args = []) {
    this.child = fork(fileURLToPath(new URL(file, import.meta.url)), args);
    this.next = 0;
    // Asking one that has ended is told by `heard`; without a listener it would end the bench, and leave the others running.
    this.child.on('error', () => undefined);
  }

  /** The first message that `pick` finds something in. */
  heard(pick) {
    return new Promise((resolve, reject) => {
      if (this.child.exitCode !== null)
        reject(new Error(`a part of the bench ended with ${this.child.exitCode}`));
      const onExit = (code) => reject(new Error(`a part of the bench ended with ${code}`));
      const onMessage = (message) => {
        const found = pick(message);
        if (found === undefined) return;
        this.child.off('message', onMessage);
        this.child.off('exit', onExit);
        resolve(found);
      };
      this.child.on('message', onMessage);
      this.child.once('exit', onExit);
    });
  }

  end() {
    this.child.removeAllListeners('exit');
    if (this.child.connected) this.child.disconnect();
  }
}

/** The model provider of the bench. */
export class Upstream extends Asked {
  static async start() {
    const upstream = new Upstream('upstream.mjs');
    upstream.origin = `http://127.0.0.1:${await upstream.heard(({ port }) => port)}`;
    return upstream;
  }

  /** From now on it answers so (shape: upstream.mjs). */
  async set(behaviour = {}) {
    this.child.send({ set: behaviour });
    await this.heard(({ done }) => done);
  }

  /** @returns {Promise<{ requests: number, chunks: number, bytes: number, closedAt: number[] }>} */
  async counts() {
    this.child.send({ ask: true });
    return this.heard(({ counts }) => counts);
  }
}

/** The load generator. */
export class Generator extends Asked {
  static async start() {
    const generator = new Generator('generator.mjs');
    await generator.heard(({ ready }) => ready);
    return generator;
  }

  /** Runs a job (shape: generator.mjs). @throws Error with what an answer other than 200 said */
  async run(job) {
    const id = (this.next += 1);
    this.child.send({ run: job, id });
    const answer = await this.heard((message) => (message.id === id ? message : undefined));
    if (answer.error) throw new Error(`${job.origin}: ${answer.error}`);
    return answer.result;
  }
}

/** A bare pass-through in front of an origin. @param form `pipe` or `dispatch` */
export async function startPassThrough(origin, form) {
  const part = new Asked('pass-through.mjs', [origin, form]);
  part.origin = `http://127.0.0.1:${await part.heard(({ port }) => port)}`;
  return part;
}

/** All processes below one, of one name if it is given. */
export function descendants(pid, name) {
  const parents = new Map();
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const stat = readFileSync(`/proc/${entry}/stat`, 'utf8');
      const rest = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const comm = stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')'));
      parents.set(Number(entry), { parent: Number(rest[1]), comm });
    } catch {
      // It ended meanwhile.
    }
  }
  const isBelow = (one) => {
    for (let at = parents.get(one)?.parent; at; at = parents.get(at)?.parent) if (at === pid) return true;
    return false;
  };
  return [...parents.keys()].filter((one) => isBelow(one) && (!name || parents.get(one).comm === name));
}

/** CPU seconds of several processes; those that have ended count nothing. */
export function cpuOf(pids) {
  let seconds = 0;
  for (const pid of pids) {
    try {
      seconds += cpuSeconds(pid);
    } catch {
      // It ended meanwhile.
    }
  }
  return seconds;
}

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** A quantile of numbers, sorted here. NaN of nothing. */
export function quantile(values, part) {
  if (values.length === 0) return NaN;
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];
}
