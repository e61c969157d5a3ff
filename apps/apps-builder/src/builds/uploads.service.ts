import { PassThrough, type Readable } from 'node:stream';
import { Inject, Injectable } from '@nestjs/common';
import { ArchiveRefused, type ArchiveSummary, checkArchive } from '@nebo/archive';
import type { KeyIdentity, V1AppDeployResult } from '@nebo/contracts';
import {
  ApiError,
  badRequest,
  idempotentRequest,
  once,
  type OnceAnswer,
  RUNTIME,
  type Runtime,
  unavailable,
  validationError,
} from '@nebo/service-kit';
import { AppsService } from '../apps/apps.service.js';
import { sayAct } from '../events.js';
import { Blobs } from '../shared/blobs.js';
import { Store } from '../shared/prisma.js';
import { Settings } from '../shared/settings.js';
import { deployResult } from './build.mapper.js';
import { beginBuild } from './build.rows.js';

/** What an upload's request says besides its body. */
export interface UploadRequest {
  method: string;
  url: string;
  idempotencyKey: string | string[] | undefined;
}

/** Folders sent as gzip tars: each is stored as the source of exactly one build. */
@Injectable()
export class UploadsService {
  constructor(
    private readonly store: Store,
    private readonly apps: AppsService,
    private readonly blobs: Blobs,
    private readonly settings: Settings,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  /**
   * Takes a folder and queues its build; answers as soon as the last byte is stored.
   * @throws ApiError 404, 413 for an archive above the limits, 422 for an app of another source, or an archive that breaks
   *   a rule (named), 503 when it cannot be stored
   */
  async deploy(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    body: Readable | undefined,
    request: UploadRequest,
  ): Promise<OnceAnswer<V1AppDeployResult>> {
    const app = await this.store.as(caller.account_id, ({ db }) =>
      this.apps.find(db, caller, projectId, appId),
    );
    if (app.source_type !== 'upload') {
      // The contract declares 422 for a thing that an app of another source does not have (as for docker_image).
      throw validationError([
        {
          loc: ['path', 'app_id'],
          msg: 'only apps with source_type upload take a folder',
          type: 'value_error',
        },
      ]);
    }
    if (!body)
      throw archiveError(new ArchiveRefused('empty_body', 'it is empty. Send a .tar.gz of the folder.'));
    const archive = await this.receive(body);
    const idem = idempotentRequest(
      caller,
      request.method,
      request.url,
      request.idempotencyKey,
      archive.sha256,
      this.runtime.masterKey,
    );
    return this.store.as(caller.account_id, ({ db, sql }) =>
      once(sql, idem, async () => {
        // Deleted while its folder was on the way: 404, and the blob is nobody's.
        const present = await this.apps.find(db, caller, projectId, appId);
        await this.blobs.note(sql, archive);
        const build = await beginBuild(sql, present, 'upload', {
          bytes: { sha256: archive.sha256, bytes: BigInt(archive.bytes) },
        });
        await sayAct(sql, caller, 'apps_create_deployment', present, {
          build_id: build.id,
          sha256: archive.sha256,
          bytes: archive.bytes,
        });
        return { status: 202, body: deployResult(build) };
      }),
    );
  }

  /** Checks an archive while it is stored. Nothing of a refused one is left. */
  private async receive(body: Readable): Promise<ArchiveSummary> {
    const copy = new PassThrough();
    copy.on('error', () => undefined);
    const stored = this.runtime.blobs.put(copy);
    try {
      const checked = checkArchive(body, { limits: this.settings.sourceLimits, copyTo: copy });
      checked.catch(() => undefined);
      // A store that fails (disk full) must end the upload, which would otherwise wait for it to take more.
      const summary = await Promise.race([checked, stored.then(() => checked)]);
      copy.end();
      await stored;
      return summary;
    } catch (error) {
      copy.destroy(error as Error);
      await stored.catch(() => undefined);
      // What the client still sends is read and dropped, so that it gets to see the answer.
      body.resume();
      if (error instanceof ArchiveRefused) throw archiveError(error);
      if (body.destroyed || body.readableAborted)
        throw badRequest('upload_interrupted', 'the upload ended early; send it again');
      throw unavailable('the archive could not be stored; send it again', error);
    }
  }
}

function archiveError(refused: ArchiveRefused): ApiError {
  const code = refused.status === 413 ? 'payload_too_large' : 'archive_refused';
  return new ApiError(refused.status, code, `${refused.message} (rule: ${refused.rule})`, {
    detail: [{ loc: ['body'], msg: refused.message, type: refused.rule }],
  });
}
