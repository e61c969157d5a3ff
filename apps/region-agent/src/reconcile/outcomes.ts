import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type BuildSpec } from '@nebo/contracts';
import { type Observation } from './reporter.js';

/** How a build ended, kept so that a new agent reports it instead of building again. */
export interface KeptOutcome {
  spec: BuildSpec;
  observation: Observation;
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

  async keep(id: string, outcome: KeptOutcome): Promise<void> {
    this.kept.set(id, outcome);
    const file = this.file(id);
    // The spec holds secrets.
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
