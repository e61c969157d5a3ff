import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { sleep } from '../system/timing.js';
import { type EngineClient, EngineRefused } from './client.js';
import { engineInfo } from './engine-info.js';
import { type Engine } from './engines.js';
import { workingContainers } from './working-containers.js';

/** What one build has made in the engine; on disk, so that the next agent can remove what a killed one left. */
interface Traces {
  /** Name of the image, with tag. */
  image: string;
  /** A line of /etc/hosts that only this build's containers have. */
  mark: string;
  /** Seconds since 1970. */
  began: number;
  /** Images without a name that steps have left. */
  made: string[];
  /** Folders of the engine that steps have written into. */
  folders: string[];
}

interface ListedContainer {
  Id: string;
  Created: number;
}

/** Seconds that the engine's clock may be behind. */
const slackSeconds = 5;

/** One build's traces in the engine. */
export class BuildTraces {
  private readonly traces: Traces;
  private readonly file: string;

  private constructor(file: string, traces: Traces) {
    this.file = file;
    this.traces = traces;
  }

  /** Notes a build before the engine hears of it. @param name of the run, unique */
  static begin(dir: string, tag: string, name: string): BuildTraces {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    const began = Math.floor(Date.now() / 1000) - slackSeconds;
    const image = `nebo-build/${tag}:${name}`;
    const traces = new BuildTraces(join(dir, `${name}.json`), {
      ...{ image, mark: `${name}.nebo-build`, began, made: [], folders: [] },
    });
    traces.write();
    return traces;
  }

  /** Those of builds that an earlier agent did not end. @param active names of runs that are of this one */
  static leftOver(dir: string, active: ReadonlySet<string>): BuildTraces[] {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    const found: BuildTraces[] = [];
    for (const name of readdirSync(dir)) {
      if (!name.endsWith('.json') || active.has(name.slice(0, -'.json'.length))) continue;
      const file = join(dir, name);
      try {
        const traces = JSON.parse(readFileSync(file, 'utf8')) as Traces;
        // Notes of an agent of before know no folders.
        found.push(new BuildTraces(file, { ...traces, folders: traces.folders ?? [] }));
      } catch {
        // Killed while it was written for the first time: the engine had not heard of it.
        rmSync(file, { force: true });
      }
    }
    return found;
  }

  /** Of the build's run. */
  get name(): string {
    return basename(this.file, '.json');
  }

  get image(): string {
    return this.traces.image;
  }

  /** For the engine's `extrahosts`. */
  get extraHost(): string {
    return `${this.traces.mark}:127.0.0.1`;
  }

  made(id: string): void {
    this.note(this.traces.made, id);
  }

  wrote(folder: string): void {
    this.note(this.traces.folders, folder);
  }

  private note(list: string[], item: string): void {
    if (list.includes(item)) return;
    list.push(item);
    this.write();
  }

  /**
   * Removes containers and images of the build. What it tells of itself comes through its own log, where a stranger's program writes
   * too: nothing is removed that does not look like this build's.
   * @throws EngineGone; what is left is removed another time then
   */
  async remove({ client, kind }: Engine): Promise<void> {
    // A build that was called off may still begin a container while it ends.
    for (let quiet = 0; quiet < 2;) {
      const own = await this.containers(client);
      for (const id of own)
        await tolerant(client.json('DELETE', `/containers/${id}`, { query: { force: '1', v: '1' } }));
      quiet = own.length === 0 ? quiet + 1 : 0;
      if (quiet === 1) await sleep(50);
    }
    if (kind === 'podman') await this.removeWorking(client);
    await tolerant(client.json('DELETE', `/images/${this.image}`, { query: { force: '1' } }));
    for (const id of [...this.traces.made].reverse())
      if (await this.isOwn(client, id)) await tolerant(client.json('DELETE', `/images/${id}`));
    rmSync(this.file, { force: true });
  }

  /** Those that Podman builds in; it removes them itself unless it was killed meanwhile. */
  private async removeWorking(client: EngineClient): Promise<void> {
    const { root } = await engineInfo(client);
    for (const id of root === null ? [] : await workingContainers(root, this.traces.folders))
      await tolerant(client.json('DELETE', `/v4.0.0/libpod/containers/${id}`, { query: { force: 'true' } }));
  }

  /** Whole ids of containers that are of this build: the line that they have was the engine's before a step could write. */
  async containers(client: EngineClient): Promise<string[]> {
    const all = await client.json<ListedContainer[]>('GET', '/containers/json', { query: { all: '1' } });
    const own: string[] = [];
    for (const { Id, Created } of all ?? []) {
      if (Created < this.traces.began) continue;
      const seen = await tolerant(
        client.json<{ HostConfig?: { ExtraHosts?: string[] | null } }>('GET', `/containers/${Id}/json`),
      );
      if (seen?.HostConfig?.ExtraHosts?.some((host) => host.startsWith(`${this.traces.mark}:`))) own.push(Id);
    }
    return own;
  }

  /** Without a name, and not older than the build. */
  private async isOwn(client: EngineClient, id: string): Promise<boolean> {
    const seen = await tolerant(
      client.json<{ RepoTags?: string[] | null; Created?: string }>('GET', `/images/${id}/json`),
    );
    if (!seen || (seen.RepoTags ?? []).length > 0) return false;
    return Date.parse(seen.Created ?? '') / 1000 >= this.traces.began;
  }

  private write(): void {
    writeFileSync(this.file, JSON.stringify(this.traces), { mode: 0o600 });
  }
}

/** What is not there, or is needed by something else, is left alone. */
async function tolerant<T>(call: Promise<T | null>): Promise<T | null> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof EngineRefused) return null;
    throw error;
  }
}
