import { type ServerResponse } from 'node:http';
import zlib, { constants } from 'node:zlib';
import { type Coding } from './coding.js';

/**
 * Levels at which a coder costs about as much as the edge's other work for the same octets, and windows that keep its memory
 * near half a megabyte: as many answers as allowed are coded at once.
 */
const ZSTD = { params: { [constants.ZSTD_c_compressionLevel]: 3, [constants.ZSTD_c_windowLog]: 17 } };
const BROTLI = { params: { [constants.BROTLI_PARAM_QUALITY]: 4, [constants.BROTLI_PARAM_LGWIN]: 17 } };
const GZIP = { level: 5 };

const makers = {
  zstd: () => zlib.createZstdCompress(ZSTD),
  br: () => zlib.createBrotliCompress(BROTLI),
  gzip: () => zlib.createGzip(GZIP),
};
const flushes: Record<Coding, number> = {
  zstd: constants.ZSTD_e_flush,
  br: constants.BROTLI_OPERATION_FLUSH,
  gzip: constants.Z_SYNC_FLUSH,
};
const whole = { zstd: zlib.zstdCompressSync, br: zlib.brotliCompressSync, gzip: zlib.gzipSync };
const options = { zstd: ZSTD, br: BROTLI, gzip: GZIP };

/** Codes a short body at once: less work than a stream, and done in tens of microseconds. */
export function encodeShort(coding: Coding, body: Buffer): Buffer {
  return (whole[coding] as (body: Buffer, options: object) => Buffer)(body, options[coding]);
}

/** Codes a body as it comes and writes it to the client's answer, with back-pressure both ways. */
export class Encoder {
  private readonly stream: ReturnType<(typeof makers)[Coding]>;
  private readonly flushKind: number;
  private isFlushed = true;

  /**
   * @param told `drain`: more may be written; `end`: the last octet was handed to `res`, which is still open; `error`: coding failed
   */
  constructor(
    coding: Coding,
    res: ServerResponse,
    told: { drain(): void; end(): void; error(error: Error): void },
  ) {
    this.stream = makers[coding]();
    this.flushKind = flushes[coding];
    this.stream.on('data', (chunk: Buffer) => {
      if (res.destroyed || res.write(chunk)) return;
      this.stream.pause();
      res.once('drain', () => this.stream.resume());
    });
    this.stream.on('drain', () => told.drain());
    this.stream.once('end', () => told.end());
    this.stream.once('error', (error) => told.error(error));
  }

  /** @returns false: wait for `drain` */
  write(chunk: Buffer): boolean {
    this.isFlushed = false;
    return this.stream.write(chunk);
  }

  /** What was written so far can be read by the client. */
  flush(): void {
    if (this.isFlushed) return;
    this.isFlushed = true;
    this.stream.flush(this.flushKind);
  }

  end(): void {
    this.stream.end();
  }

  destroy(): void {
    this.stream.destroy();
  }
}
