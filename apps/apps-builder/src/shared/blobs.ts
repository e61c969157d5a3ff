import { Inject, Injectable } from '@nestjs/common';
import { Database } from '@nebo/persistence';
import { isSha256, notFound, OwnedBlobs, RUNTIME, type Runtime } from '@nebo/service-kit';
import type { FastifyReply } from 'fastify';

/** The blobs of this service, sources and artifacts of builds: which there are, who may read them, and when they go. */
@Injectable()
export class Blobs extends OwnedBlobs {
  constructor(database: Database, @Inject(RUNTIME) { blobs }: Pick<Runtime, 'blobs'>) {
    super(
      database,
      blobs,
      `exists (select 1 from build where source_sha256 = b.sha256)
         or exists (select 1 from build where artifact_sha256 = b.sha256)
         or exists (select 1 from build where image_layers @> array[b.sha256])`,
    );
  }

  /**
   * Answers with the bytes of a blob that a build owns.
   * @param regionId only what builds of this region own; null: of any
   * @throws ApiError 404
   */
  async read(sha256: string, regionId: string | null, reply: FastifyReply): Promise<void> {
    if (!isSha256(sha256)) throw notFound();
    const owned = await this.database.transaction((tx) =>
      tx.query(
        `select 1 as owned from build
         where (source_sha256 = $1 or artifact_sha256 = $1 or image_layers @> array[$1]::text[]) and ($2::uuid is null or region_id = $2::uuid) limit 1`,
        [sha256, regionId],
      ),
    );
    if (owned.length === 0) throw notFound();
    await this.send(sha256, reply);
  }
}
