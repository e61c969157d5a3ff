import type { Readable } from 'node:stream';
import { Inject, Injectable } from '@nestjs/common';
import { Database, type Sql } from '@nebo/persistence';
import { notFound, RUNTIME, type Runtime, unavailable } from '@nebo/service-kit';

/** How long bytes that no row owns are kept (interfaces.md, 8). */
const unownedHours = 24;

/** The blobs of this service: which there are, who may read them, and when they go. */
@Injectable()
export class Blobs {
  constructor(
    private readonly database: Database,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  /**
   * Remembers a stored blob, in the transaction that makes it somebody's. Its row is the lock between this and the
   * collector: whoever comes second sees what the first did.
   * @throws ApiError 503 when the collector has just taken the bytes: they must be sent again
   */
  async note(tx: Sql, blob: { sha256: string; bytes: number }): Promise<void> {
    await tx.query(
      `insert into blob (sha256, bytes) values ($1, $2::bigint)
       on conflict (sha256) do update set stored_at = now()`,
      [blob.sha256, blob.bytes],
    );
    if ((await this.runtime.blobs.has(blob.sha256)) === null)
      throw unavailable('the bytes are gone again; send them once more');
  }

  /**
   * The bytes of a blob that a row owns.
   * @param regionId only what builds of this region own; null: of any
   * @throws ApiError 404
   */
  async read(sha256: string, regionId: string | null): Promise<{ bytes: number; stream: Readable }> {
    if (!/^[0-9a-f]{64}$/.test(sha256)) throw notFound();
    const owned = await this.database.transaction((tx) =>
      tx.query(
        `select 1 as owned from build
         where (source_sha256 = $1 or artifact_sha256 = $1) and ($2::uuid is null or region_id = $2::uuid) limit 1`,
        [sha256, regionId],
      ),
    );
    const bytes = owned.length === 0 ? null : await this.runtime.blobs.has(sha256);
    if (bytes === null) throw notFound();
    return { bytes, stream: await this.runtime.blobs.get(sha256) };
  }

  /**
   * Deletes blobs that no build owns and that are older than a day.
   * @returns how many
   */
  async collect(): Promise<number> {
    const old = await this.database.transaction((tx) =>
      tx.query<{ sha256: string }>(
        `select sha256 from blob b where stored_at < now() - make_interval(hours => $1::int)
           and not exists (select 1 from build where source_sha256 = b.sha256)
           and not exists (select 1 from build where artifact_sha256 = b.sha256) limit 1000`,
        [unownedHours],
      ),
    );
    let count = 0;
    for (const { sha256 } of old) {
      await this.database.transaction(async (tx) => {
        const gone = await tx.query(
          `delete from blob b where sha256 = $1 and stored_at < now() - make_interval(hours => $2::int)
             and not exists (select 1 from build where source_sha256 = b.sha256)
             and not exists (select 1 from build where artifact_sha256 = b.sha256) returning 1 as gone`,
          [sha256, unownedHours],
        );
        if (gone.length === 0) return;
        // Before the commit: an upload of the same bytes waits at the row until the file's fate is decided.
        await this.runtime.blobs.delete(sha256);
        count += 1;
      });
    }
    return count;
  }
}
