import { Inject, Injectable } from '@nestjs/common';
import { Database } from '@nebo/persistence';
import { isSha256, notFound, OwnedBlobs, RUNTIME, type Runtime, SERVICE_NAME } from '@nebo/service-kit';
import type { FastifyReply } from 'fastify';

/**
 * Bytes of images, of backups, and of restores that are under way. An image that was withdrawn keeps them while machines
 * that were made of it exist.
 */
@Injectable()
export class Blobs extends OwnedBlobs {
  /** Largest disk file that is stored, bytes. */
  readonly limit: number;

  constructor(
    database: Database,
    @Inject(RUNTIME) { blobsOf, config }: Pick<Runtime, 'blobsOf' | 'config'>,
    @Inject(SERVICE_NAME) service: string,
  ) {
    super(
      database,
      blobsOf(service),
      `exists (select 1 from vm_backup where sha256 = b.sha256)
         or exists (select 1 from vm where restore_sha256 = b.sha256)
         or exists (select 1 from image i where i.sha256 = b.sha256
           and (i.withdrawn_at is null or exists (select 1 from vm where image_id = i.id)))`,
    );
    this.limit = config.int('NEBO_DISK_FILE_MAX', 1024 ** 4, { min: 1 });
  }

  /**
   * Answers a region's agent with bytes that a machine of its region is to be made of.
   * @throws ApiError 404, also for bytes that only other regions want
   */
  async read(sha256: string, regionId: string, reply: FastifyReply): Promise<void> {
    if (!isSha256(sha256)) throw notFound();
    const wanted = await this.database.transaction((tx) =>
      tx.query(
        `select 1 as wanted from vm where restore_sha256 = $1 and region_id = $2::uuid and handed and not gone
         union all
         select 1 from image i join vm v on v.image_id = i.id
           where i.sha256 = $1 and v.region_id = $2::uuid and v.handed and not v.gone
         limit 1`,
        [sha256, regionId],
      ),
    );
    if (wanted.length === 0) throw notFound();
    await this.send(sha256, reply);
  }
}
