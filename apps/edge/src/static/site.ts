import { type Encoding } from './content.js';

/** One file of a site, found at load time; nothing about it changes later. */
export interface SiteFile {
  /** Path of the real file: symbolic links are followed when the site is indexed, never when it is served. */
  file: string;
  /** Bytes. */
  size: number;
  /** First part of the strong ETag: SHA-256 of the content, base64url. */
  hash: string;
  /** Value of Content-Type. */
  type: string;
  /** Whether compressed forms are worth making; then answers vary by Accept-Encoding. */
  compressible: boolean;
  encodings: Partial<Record<Encoding, EncodedFile>>;
}

export interface EncodedFile {
  file: string;
  /** Bytes. */
  size: number;
}

/**
 * The files of one artifact. Only what is listed can be served: a request never turns into a path of the file system, so
 * no spelling of a URL reaches beyond the site.
 */
export class Site {
  /** Requests that use the site now; its folder is not removed meanwhile. */
  inFlight = 0;

  /**
   * @param files by path without leading slash, e.g. `assets/app.js`
   */
  constructor(
    readonly sha256: string,
    readonly files: ReadonlyMap<string, SiteFile>,
  ) {}

  /** Bytes of all files, as they are. */
  get bytes(): number {
    let sum = 0;
    for (const file of this.files.values()) sum += file.size;
    return sum;
  }
}
