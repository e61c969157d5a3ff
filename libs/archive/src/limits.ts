/**
 * What an archive may be. Defaults are the ruling of interfaces.md section 10; every one is a setting
 * (`archiveLimitsFromEnv`). Sizes in bytes, times in milliseconds.
 */
export interface ArchiveLimits {
  /** Size of the gzip file. */
  compressedBytes: number;
  /** Size of the tar inside, headers and padding included. */
  expandedBytes: number;
  /** Expanded : compressed, looked at once more than `ratioAfterBytes` have been expanded. */
  ratio: number;
  ratioAfterBytes: number;
  /** Entries, and separately directories that are only implied by a longer path. */
  entries: number;
  /** Length of one path in UTF-8. */
  pathBytes: number;
  /** Segments of one path. */
  pathLevels: number;
  /** All extension headers (pax, GNU long names) of one entry together. */
  headerBytes: number;
  /** Longest time in which no further byte arrives. */
  idleMs: number;
  /** Refuse names that fall together on a disk that ignores case or Unicode form. */
  foldCollisions: boolean;
}

const MiB = 1024 * 1024;

/** Limits for archives that strangers send. */
export const sourceLimits: Readonly<ArchiveLimits> = {
  compressedBytes: 100 * MiB,
  expandedBytes: 1024 * MiB,
  ratio: 100,
  ratioAfterBytes: 10 * MiB,
  entries: 50_000,
  pathBytes: 1_024,
  pathLevels: 64,
  headerBytes: 64 * 1024,
  idleMs: 60_000,
  foldCollisions: true,
};

/**
 * Limits for artifacts that our own builds made: a server's `node_modules` is larger and deeper than a source, repeats
 * itself more and is only ever unpacked on Linux. Everything about safety stays the same.
 */
export const artifactLimits: Readonly<ArchiveLimits> = {
  ...sourceLimits,
  compressedBytes: 1024 * MiB,
  expandedBytes: 4 * 1024 * MiB,
  ratio: 1_000,
  entries: 400_000,
  pathBytes: 4_000,
  pathLevels: 256,
  foldCollisions: false,
};

/** `sourceLimits` with some replaced. */
export function archiveLimits(changes: Partial<ArchiveLimits> = {}): ArchiveLimits {
  return { ...sourceLimits, ...changes };
}

const settings: Record<string, keyof ArchiveLimits> = {
  NEBO_ARCHIVE_MAX_COMPRESSED: 'compressedBytes',
  NEBO_ARCHIVE_MAX_EXPANDED: 'expandedBytes',
  NEBO_ARCHIVE_MAX_RATIO: 'ratio',
  NEBO_ARCHIVE_MAX_ENTRIES: 'entries',
  NEBO_ARCHIVE_MAX_PATH: 'pathBytes',
  NEBO_ARCHIVE_MAX_LEVELS: 'pathLevels',
  NEBO_ARCHIVE_MAX_HEADER: 'headerBytes',
  NEBO_ARCHIVE_IDLE_MS: 'idleMs',
};

/**
 * Limits from the environment: `NEBO_ARCHIVE_MAX_COMPRESSED`, `_EXPANDED`, `_RATIO`, `_ENTRIES`, `_PATH`, `_LEVELS`,
 * `_HEADER` and `NEBO_ARCHIVE_IDLE_MS`, each a positive integer.
 * @throws Error that names the setting when it is not one
 */
export function archiveLimitsFromEnv(env: Record<string, string | undefined> = process.env): ArchiveLimits {
  const limits = archiveLimits();
  for (const [name, key] of Object.entries(settings)) {
    const text = env[name];
    if (text === undefined || text === '') continue;
    const value = Number(text);
    if (!Number.isSafeInteger(value) || value <= 0)
      throw new Error(`${name} must be a positive integer, not "${text}"`);
    (limits[key] as number) = value;
  }
  return limits;
}
