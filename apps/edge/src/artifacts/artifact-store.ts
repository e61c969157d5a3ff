import { createHash, randomBytes } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { mkdir, readFile, readdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type EdgeLogger } from '../observe/logger.js';
import { abortable, sleep } from '../abortable.js';
import { compressSite } from '../static/compress.js';
import { indexSite } from '../static/index-site.js';
import { Site, type SiteFile } from '../static/site.js';

/** Unpacks a gzip tar into a folder that it makes, and throws on anything hostile; `extractArchive` of `@nebo/archive`. */
export type Extract = (file: string, targetDir: string) => Promise<unknown>;

export interface ArtifactStoreOptions {
  /** Holds one folder per artifact. */
  dir: string;
  fetch: (sha256: string, signal: AbortSignal) => Promise<Readable>;
  extract: Extract;
  logger: EdgeLogger;
  /** Milliseconds without a byte after which a download has failed. */
  stallMs: number;
  /** Milliseconds that a site waits for its compressed forms before it may go live without them. */
  compressBudgetMs: number;
  /** Artifacts that no route needs: so many newest ones are kept, for a quick way back. */
  keepUnused: number;
  /** Milliseconds that an artifact is kept at least after its last use. */
  keepMs: number;
}

const INDEX = 'index.json';

interface StoredIndex {
  format: 1;
  sha256: string;
  /** `file` is relative to the artifact's folder. */
  files: [path: string, file: string, size: number, hash: string, type: string, compressible: boolean][];
}

/**
 * Artifacts on disk, `<dir>/<sha256>/{files,encoded,index.json}`. A folder appears under its name by one rename when it is
 * complete, so that whatever is there after a crash is whole.
 */
export class ArtifactStore {
  private readonly sites = new Map<string, Site>();
  private readonly opening = new Map<string, Promise<Site>>();
  private readonly removing = new Map<string, Promise<void>>();
  private readonly lastUse = new Map<string, number>();
  private readonly background = new Set<Promise<void>>();
  private readonly abort = new AbortController();

  constructor(private readonly options: ArtifactStoreOptions) {}

  /** Makes the folder and removes what an interrupted process left half done. */
  async start(): Promise<void> {
    await mkdir(this.options.dir, { recursive: true, mode: 0o700 });
    for (const name of await readdir(this.options.dir)) {
      if (!isHash(name)) await rm(join(this.options.dir, name), { recursive: true, force: true });
    }
  }

  /** Ends background work; the files stay. */
  async stop(): Promise<void> {
    this.abort.abort();
    await Promise.allSettled([...this.opening.values(), ...this.background]);
  }

  /** The opened site of an artifact; undefined while it is not at hand. */
  site(sha256: string): Site | undefined {
    return this.sites.get(sha256);
  }

  /** Artifacts at hand, and the bytes of their files. */
  usage(): { count: number; bytes: number } {
    let bytes = 0;
    for (const site of this.sites.values()) bytes += site.bytes;
    return { count: this.sites.size, bytes };
  }

  /** Opens an artifact that is on disk; null when it is not. */
  async open(sha256: string): Promise<Site | null> {
    await this.removing.get(sha256);
    const known = this.sites.get(sha256);
    if (known) return known;
    try {
      await stat(join(this.options.dir, sha256, INDEX));
    } catch {
      return null;
    }
    try {
      const site = await this.load(sha256);
      await verifySizes(site);
      this.adopt(site);
      this.inBackground(this.compress(site));
      return site;
    } catch (error) {
      this.options.logger.warn(
        { err: error, artifact: sha256 },
        'an artifact on disk is unreadable and is fetched again',
      );
      await rm(join(this.options.dir, sha256), { recursive: true, force: true });
      return null;
    }
  }

  /**
   * Brings an artifact to this disk, if it is not there: downloads, checks length and SHA-256, unpacks, lists.
   * @param bytes the length that the route promises
   * @throws when the download fails, is another length or hash, or the archive is refused; nothing is left then
   */
  ensure(sha256: string, bytes: number): Promise<Site> {
    const running = this.opening.get(sha256);
    if (running) return running;
    const task = this.bring(sha256, bytes).finally(() => this.opening.delete(sha256));
    this.opening.set(sha256, task);
    return task;
  }

  /**
   * Removes artifacts that nothing refers to, least recently used first, keeping some for a quick way back and all that a
   * running request reads.
   * @param isReferenced asked again at the very moment of removal: a route may come back while the disk is being looked at
   * @returns hashes that were removed
   */
  async collect(isReferenced: (sha256: string) => boolean, now = Date.now()): Promise<string[]> {
    const unused: { sha256: string; at: number }[] = [];
    for (const name of await readdir(this.options.dir)) {
      if (!isHash(name)) continue;
      if (isReferenced(name)) {
        this.lastUse.set(name, now);
        continue;
      }
      const at = this.lastUse.get(name) ?? (await stat(join(this.options.dir, name))).mtimeMs;
      this.lastUse.set(name, at);
      unused.push({ sha256: name, at });
    }
    unused.sort((a, b) => b.at - a.at);
    const removed: string[] = [];
    for (const { sha256, at } of unused.slice(this.options.keepUnused)) {
      const busy = this.opening.has(sha256) || (this.sites.get(sha256)?.inFlight ?? 0) > 0;
      if (now - at < this.options.keepMs || busy || isReferenced(sha256)) continue;
      // No wait between the check and this: from here on the artifact is gone for routes, and fetched anew if one wants it.
      this.sites.delete(sha256);
      this.lastUse.delete(sha256);
      const task = this.remove(sha256).finally(() => this.removing.delete(sha256));
      this.removing.set(sha256, task);
      await task;
      removed.push(sha256);
    }
    return removed;
  }

  private async remove(sha256: string): Promise<void> {
    const doomed = join(this.options.dir, `gone-${sha256}-${randomBytes(4).toString('hex')}`);
    await rename(join(this.options.dir, sha256), doomed);
    await rm(doomed, { recursive: true, force: true });
  }

  private async bring(sha256: string, bytes: number): Promise<Site> {
    if (!isHash(sha256)) throw new Error('an artifact is named by 64 lower-case hex digits');
    const there = await this.open(sha256);
    if (there) return there;
    const work = join(this.options.dir, `part-${sha256}-${randomBytes(4).toString('hex')}`);
    try {
      await mkdir(work, { mode: 0o700 });
      const archive = join(work, 'artifact.tar.gz');
      await this.download(sha256, bytes, archive);
      await this.options.extract(archive, join(work, 'files'));
      await rm(archive, { force: true });
      const site = await indexSite(sha256, join(work, 'files'));
      await writeFile(join(work, INDEX), JSON.stringify(storedIndex(site, work)));
      const final = join(this.options.dir, sha256);
      await rm(final, { recursive: true, force: true });
      await rename(work, final);
    } catch (error) {
      await rm(work, { recursive: true, force: true });
      throw error;
    }
    const site = await this.load(sha256);
    const compressing = this.inBackground(this.compress(site));
    await Promise.race([compressing, sleep(this.options.compressBudgetMs, this.abort.signal)]);
    this.adopt(site);
    return site;
  }

  private async download(sha256: string, bytes: number, target: string): Promise<void> {
    const stalled = new AbortController();
    const signal = AbortSignal.any([this.abort.signal, stalled.signal]);
    const expire = (): void => stalled.abort(new Error('the download of an artifact has stalled'));
    let timer = setTimeout(expire, this.options.stallMs);
    const hash = createHash('sha256');
    let length = 0;
    const meter = new Transform({
      transform: (chunk: Buffer, _encoding, done) => {
        clearTimeout(timer);
        timer = setTimeout(expire, this.options.stallMs);
        length += chunk.length;
        if (length > bytes)
          return done(new Error(`the artifact is longer than the ${bytes} bytes of its route`));
        hash.update(chunk);
        done(null, chunk);
      },
    });
    try {
      const fetching = this.options.fetch(sha256, signal);
      fetching.then(
        (late) => signal.aborted && late.destroy(),
        () => undefined,
      );
      const source = await abortable(fetching, signal);
      await pipeline(source, meter, createWriteStream(target, { mode: 0o600 }), { signal });
    } catch (error) {
      throw stalled.signal.aborted ? stalled.signal.reason : error;
    } finally {
      clearTimeout(timer);
    }
    if (length !== bytes) throw new Error(`the artifact has ${length} bytes, its route says ${bytes}`);
    if (hash.digest('hex') !== sha256) throw new Error('the artifact is not the one that its hash names');
  }

  private async load(sha256: string): Promise<Site> {
    const home = join(this.options.dir, sha256);
    const stored = JSON.parse(await readFile(join(home, INDEX), 'utf8')) as StoredIndex;
    if (stored.format !== 1 || stored.sha256 !== sha256) throw new Error('unknown index');
    const files = new Map<string, SiteFile>();
    for (const [path, file, size, hash, type, compressible] of stored.files) {
      files.set(path, { file: join(home, file), size, hash, type, compressible, encodings: {} });
    }
    return new Site(sha256, files);
  }

  private adopt(site: Site): void {
    this.sites.set(site.sha256, site);
    this.lastUse.set(site.sha256, Date.now());
    // The folder's time is what a later process knows of its last use.
    const now = new Date();
    this.inBackground(utimes(join(this.options.dir, site.sha256), now, now));
  }

  private compress(site: Site): Promise<void> {
    return compressSite(site, join(this.options.dir, site.sha256, 'encoded'), this.abort.signal);
  }

  private inBackground(task: Promise<void>): Promise<void> {
    const guarded = task
      .catch((error: unknown) => {
        // The site is served uncompressed then; a removed folder is no news.
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
          this.options.logger.warn({ err: error }, 'background work on an artifact failed');
      })
      .finally(() => this.background.delete(guarded));
    this.background.add(guarded);
    return guarded;
  }
}

function storedIndex(site: Site, home: string): StoredIndex {
  const files: StoredIndex['files'] = [];
  for (const [path, file] of site.files) {
    files.push([path, relative(home, file.file), file.size, file.hash, file.type, file.compressible]);
  }
  return { format: 1, sha256: site.sha256, files };
}

/** A power cut may leave a file shorter than it was written; its artifact is fetched again then. */
async function verifySizes(site: Site): Promise<void> {
  for (const [path, file] of site.files) {
    if ((await stat(file.file)).size !== file.size) throw new Error(`${path} is not whole`);
  }
}

function isHash(name: string): boolean {
  return /^[0-9a-f]{64}$/.test(name);
}
