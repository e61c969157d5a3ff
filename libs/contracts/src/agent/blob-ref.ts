/** Bytes in the blob store, by content. */
export interface BlobRef {
  /** 64 lower-case hex digits. */
  sha256: string;
  bytes: number;
}
