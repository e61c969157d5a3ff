import { buffer } from 'node:stream/consumers';
import { Injectable } from '@nestjs/common';
import type { BlobRef } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { conflict, idOrNull, notFound, referenceNotFound, validationError } from '@nebo/service-kit';
import type { FastifyRequest } from 'fastify';
import { Blobs } from '../blobs/blobs.js';
import { diskHeadBytes, type DiskFile, gigabytes, NotADisk, readDiskFile } from '../blobs/disk-file.js';
import { CatalogueService, type Image, insertImage } from './catalogue.service.js';

/** A stored disk file, as an operator is told of it. */
export interface StoredDisk extends BlobRef {
  format: DiskFile['format'];
  /** Bytes of the disk that a machine sees. */
  virtual_bytes: number;
  /** The least disk of a machine that is made of it. */
  min_disk_gb: number;
}

/** What an operator says of an image, besides its bytes. */
export interface ImageFields {
  slug: string;
  version: string;
  name: string;
  os_family: string;
  description: string | null;
  /** More than its bytes need; null: what they need. */
  min_disk_gb: number | null;
  /** Null: every region there is. */
  region_ids: string[] | null;
}

/** Images that operators register: bytes in the blob store, and the row that owns them. */
@Injectable()
export class ImagesService {
  constructor(
    private readonly database: Database,
    private readonly catalogue: CatalogueService,
    private readonly blobs: Blobs,
  ) {}

  /**
   * Stores the body of an upload; without an image that names it, it goes after a day.
   * @param sha256 the hash that it must have; null: any
   * @throws ApiError 413, 422 for another hash and for what is no disk, and as an upload is refused
   */
  async store(request: FastifyRequest, sha256: string | null): Promise<StoredDisk> {
    return this.look(
      await this.blobs.receive(request, { sha256, limit: this.blobs.limit, what: 'an image' }),
    );
  }

  /**
   * Registers a stored disk file. One that was withdrawn is offered again, one that is there also in the regions that were added
   * or not named before.
   * @throws ApiError 404 naming the field for bytes that are not stored and an unknown region, 409 `image_exists`
   */
  async add(sha256: string, fields: ImageFields): Promise<Image> {
    const bytes = await this.blobs.store.has(sha256);
    if (bytes === null) throw referenceNotFound('sha256');
    const disk = await this.look({ sha256, bytes });
    const { region_ids, slug, version } = fields;
    // Each build of a version has a name of its own, which also says how it is to be read.
    const filename = `${slug}-${version.replace(/[^A-Za-z0-9._-]/g, '-')}-${sha256.slice(0, 8)}.${disk.format}`;
    return this.database.transaction(async (tx) => {
      const known = await tx.query('select 1 as known from region where id = any($1::uuid[])', [
        region_ids ?? [],
      ]);
      if (region_ids && known.length < new Set(region_ids).size) throw referenceNotFound('region');
      await this.blobs.note(tx, disk);
      const added = await insertImage(tx, {
        ...fields,
        kind: 'os',
        filename,
        min_disk_gb: Math.max(fields.min_disk_gb ?? 0, disk.min_disk_gb),
        sha256,
        bytes,
      });
      if (!added) throw conflict('image_exists', `${slug} ${version} with these bytes exists`);
      return added;
    });
  }

  /**
   * Takes an image from the list: nobody can order it any more. Machines that were made of it keep it, and its bytes.
   * @throws ApiError 404
   */
  async withdraw(id: string): Promise<Image> {
    const rows = await this.database.query(
      'update image set withdrawn_at = coalesce(withdrawn_at, now()) where id = $1::uuid returning 1 as done',
      [idOrNull(id)],
    );
    if (rows.length === 0) throw notFound();
    return this.catalogue.imageOf(id);
  }

  private async look(blob: BlobRef): Promise<StoredDisk> {
    const head = await buffer(await this.blobs.store.get(blob.sha256, { start: 0, end: diskHeadBytes - 1 }));
    try {
      const { format, virtualBytes } = readDiskFile(head, blob.bytes);
      return { ...blob, format, virtual_bytes: virtualBytes, min_disk_gb: gigabytes(virtualBytes) };
    } catch (error) {
      if (!(error instanceof NotADisk)) throw error;
      throw validationError([{ loc: ['body'], msg: `the file ${error.message}`, type: 'not_a_disk' }]);
    }
  }
}
