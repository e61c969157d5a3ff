import { createHash, createHmac, randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type BuildSpec } from '@nebo/contracts';
import { type Observation } from './reporter.js';

/**
 * How a build ended, kept so that a new agent reports it instead of building again. Of what was built only a digest is kept,
 * salted: the spec holds secrets, and nobody needs them once the build has ended.
 */
export interface KeptOutcome {
  /** Salt and digest of the spec, see `isOf`. */
  spec: string;
  observation: Observation;
}

/** Whether an outcome is that of a spec. */
export function isOf(outcome: KeptOutcome, spec: BuildSpec): boolean {
  return outcome.spec === digest(spec, outcome.spec.split(':', 1)[0]!);
}

function digest(spec: BuildSpec, salt: string): string {
  return `${salt}:${createHmac('sha256', salt).update(sorted(spec)).digest('hex')}`;
}

/** JSON with sorted keys: a spec comes over the wire anew each time. */
function sorted(value: unknown): string {
  return JSON.stringify(value, (_key, item: unknown) =>
    typeof item === 'object' && item !== null && !Array.isArray(item)
      ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)))
      : item,
  );
}

/** Outcomes of builds on disk, until the control plane does not list the build any more. */
export class Outcomes {
  private readonly kept = new Map<string, KeptOutcome>();

  constructor(private readonly dir: string) {}

  async start(): Promise<void> {
    await mkdir(this.dir, { recursive: true, mode: 0o700 });
    for (const name of await readdir(this.dir)) {
      if (!name.endsWith('.json')) continue;
      try {
        const kept = JSON.parse(await readFile(join(this.dir, name), 'utf8')) as KeptOutcome;
        if (typeof kept.spec !== 'string') throw new Error('kept by an earlier version, with its secrets');
        this.kept.set(kept.observation.id, kept);
      } catch {
        // Half a file is no outcome: the build is made again.
        await rm(join(this.dir, name), { force: true });
      }
    }
  }

  get(id: string): KeptOutcome | undefined {
    return this.kept.get(id);
  }

  ids(): string[] {
    return [...this.kept.keys()];
  }

  async keep(id: string, spec: BuildSpec, observation: Observation): Promise<void> {
    const outcome: KeptOutcome = { spec: digest(spec, randomBytes(16).toString('hex')), observation };
    this.kept.set(id, outcome);
    const file = this.file(id);
    await writeFile(`${file}.new`, JSON.stringify(outcome), { mode: 0o600 });
    await rename(`${file}.new`, file);
  }

  async drop(id: string): Promise<void> {
    this.kept.delete(id);
    await rm(this.file(id), { force: true });
  }

  private file(id: string): string {
    // Ids come from the control plane; hashed, none can name another file.
    return join(this.dir, `${createHash('sha256').update(id).digest('hex').slice(0, 32)}.json`);
  }
}
