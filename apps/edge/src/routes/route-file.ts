import { mkdir, open, readFile, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type EdgeLogger } from '../observe/logger.js';
import { type StoredRoutes } from './route-table.js';
import { isRoute } from './validate.js';

/**
 * The last known routes on disk (`NEBO_HOME/edge/routes.json`), so that a restart serves while the control plane is down.
 * Written whole to a second file that then takes the name: a crash leaves the old or the new one.
 */
export class RouteFile {
  private wanted: (() => StoredRoutes | null) | null = null;
  private writing: Promise<void> | null = null;

  constructor(
    private readonly path: string,
    private readonly logger: EdgeLogger,
  ) {}

  /** The stored routes; null when there are none or the file is unreadable. */
  async read(): Promise<StoredRoutes | null> {
    let text: string;
    try {
      text = await readFile(this.path, 'utf8');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
        this.logger.error({ err: error }, 'the stored routes cannot be read');
      return null;
    }
    try {
      const stored = JSON.parse(text) as StoredRoutes;
      if (stored.format !== 1 || typeof stored.version !== 'string') throw new Error('unknown format');
      return { ...stored, routes: stored.routes.filter(isRoute), serving: stored.serving.filter(isRoute) };
    } catch (error) {
      this.logger.error({ err: error }, 'the stored routes are unreadable and are fetched anew');
      return null;
    }
  }

  /**
   * Writes the present state. Calls that come while one is being written are done together by one more. A failure (a full
   * disk) is logged: serving goes on from memory.
   */
  save(state: () => StoredRoutes | null): Promise<void> {
    this.wanted = state;
    this.writing ??= this.drain().finally(() => (this.writing = null));
    return this.writing;
  }

  private async drain(): Promise<void> {
    while (this.wanted) {
      const stored = this.wanted();
      this.wanted = null;
      if (!stored) continue;
      try {
        await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
        const next = `${this.path}.next`;
        const file = await open(next, 'w', 0o600);
        try {
          await file.writeFile(JSON.stringify(stored));
          await file.sync();
        } finally {
          await file.close();
        }
        await rename(next, this.path);
      } catch (error) {
        this.logger.error({ err: error }, 'the routes could not be stored');
      }
    }
  }
}
