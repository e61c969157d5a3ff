import { Readable, Transform } from 'node:stream';
import type { BlobRef } from '@nebo/contracts';
import { BlobMismatch, type BlobStore, type Database, type Sql } from '@nebo/persistence';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError, badRequest, notFound, tooLarge, unavailable, validationError } from './errors.js';

/** How long bytes that no row owns are kept (interfaces.md, 8). */
const unownedHours = 24;

/** What a request with bytes may bring. */
export interface Incoming {
  /** The hash that the bytes must have; null: any. */
  sha256: string | null;
  /** Most bytes. */
  limit: number;
  /** What it is, for the refusal of too many bytes: `an artifact`. */
  what: string;
}

/**
 * The blobs of a service: which there are, and when they go. The service's schema has a table
 * `blob (sha256 text primary key, bytes bigint, stored_at timestamptz)`.
 */
export class OwnedBlobs {
  /**
   * @param store the service's own: of one that it shared, it would collect what another service owns
   * @param owned SQL that is true of a row `b` of `blob` while another row owns it
   */
  constructor(
    protected readonly database: Database,
    readonly store: BlobStore,
    private readonly owned: string,
  ) {}

  /**
   * Remembers a stored blob, in the transaction that makes it somebody's. Its row is the lock between this and the
   * collector: whoever comes second sees what the first did.
   * @throws ApiError 503 when the collector has just taken the bytes: they must be sent again
   */
  async note(tx: Sql, blob: BlobRef): Promise<void> {
    await tx.query(
      `insert into blob (sha256, bytes) values ($1, $2::bigint)
       on conflict (sha256) do update set stored_at = now()`,
      [blob.sha256, blob.bytes],
    );
    if ((await this.store.has(blob.sha256)) === null)
      throw unavailable('the bytes are gone again; send them once more');
  }

  /** Stores the body of an upload and remembers it for a day, until a row owns it.
   * @throws ApiError 400 `upload_interrupted`, 413, 422 for a hash that is none or another one, 503 when it cannot be stored
   */
  async receive(request: FastifyRequest, { sha256, limit, what }: Incoming): Promise<BlobRef> {
    if (sha256 !== null && !isSha256(sha256))
      throw wrongHash('must be 64 lower-case hex digits', 'value_error');
    const refused = () => tooLarge(`${what} has at most ${limit} bytes`);
    if (Number(request.headers['content-length'] ?? 0) > limit) throw refused();
    const body = (request.body as Readable | undefined) ?? Readable.from([]);
    const blob = await this.keep(body, sha256, limit, refused);
    await this.database.transaction((tx) => this.note(tx, blob));
    return blob;
  }

  /** Answers with the bytes of a blob. @throws ApiError 404 when they are not there */
  async send(sha256: string, reply: FastifyReply): Promise<void> {
    const bytes = isSha256(sha256) ? await this.store.has(sha256) : null;
    if (bytes === null) throw notFound();
    const stream = await this.store.get(sha256);
    void reply
      .header('content-type', 'application/octet-stream')
      .header('content-length', bytes)
      .send(stream);
  }

  /**
   * Deletes blobs that no row owns and that are older than a day, and what uploads left that ended with their process.
   * @returns how many blobs
   */
  async collect(): Promise<number> {
    const old = await this.database.transaction((tx) =>
      tx.query<{ sha256: string }>(
        `select sha256 from blob b where stored_at < now() - make_interval(hours => $1::int) and not (${this.owned})
         limit 1000`,
        [unownedHours],
      ),
    );
    let count = 0;
    for (const { sha256 } of old) {
      await this.database.transaction(async (tx) => {
        const gone = await tx.query(
          `delete from blob b where sha256 = $1 and stored_at < now() - make_interval(hours => $2::int)
             and not (${this.owned}) returning 1 as gone`,
          [sha256, unownedHours],
        );
        if (gone.length === 0) return;
        // Before the commit: an upload of the same bytes waits at the row until the file's fate is decided.
        await this.store.delete(sha256);
        count += 1;
      });
    }
    await this.store.sweep();
    return count;
  }

  private async keep(
    body: Readable,
    sha256: string | null,
    limit: number,
    refused: () => ApiError,
  ): Promise<BlobRef> {
    let bytes = 0;
    const counted = new Transform({
      transform(chunk: Buffer, _encoding, done) {
        bytes += chunk.length;
        done(bytes > limit ? refused() : null, chunk);
      },
    });
    // Not `pipeline`: it would destroy the request, and with it the connection, before the answer.
    body.on('error', (error) => counted.destroy(error));
    body.on('close', () => {
      if (!body.readableEnded) counted.destroy(new Error('the upload ended early'));
    });
    body.pipe(counted);
    try {
      return await this.store.put(counted, sha256 ?? undefined);
    } catch (error) {
      body.unpipe(counted);
      body.resume();
      if (error instanceof ApiError) throw error;
      if (error instanceof BlobMismatch) throw wrongHash('the bytes have another hash', 'hash_mismatch');
      if (body.destroyed || body.readableAborted)
        throw badRequest('upload_interrupted', 'the upload ended early; send it again');
      throw unavailable('the bytes could not be stored; send them again', error);
    }
  }
}

export const isSha256 = (text: string): boolean => /^[0-9a-f]{64}$/.test(text);

const wrongHash = (msg: string, type: string) => validationError([{ loc: ['path', 'sha256'], msg, type }]);
