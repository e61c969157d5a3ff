/** A certificate and its key, ready for a handshake. */
export interface Certificate {
  /** PEM, leaf first, then intermediates. */
  cert: string;
  /** PEM, PKCS #8. */
  key: string;
  /** Not used after this time; asked for again when a third of its life is left. */
  notBefore: Date;
  notAfter: Date;
}

/**
 * Where certificates come from. Sources are asked in order; the first that has one is used. The local CA is the last one.
 * An ACME source is another folder that implements this.
 */
export interface CertificateSource {
  readonly name: string;
  /**
   * @param host normalised name that the edge serves
   * @returns null when this source has none for the name
   */
  certificate(host: string): Promise<Certificate | null>;
}
