import type { InferenceIdentity } from '@nebo/contracts';
import type { Catalogue } from '../catalogue/catalogue.js';
import type { Admitted } from '../completions/admission.js';
import type { Piece } from '../completions/piece.js';
import type { Completed } from '../completions/completions.service.js';
import type { Order } from '../completions/order.js';

/** One of the wire formats of `{ai_url}`. All that differs between them is behind this. */
export interface Format {
  /** Path of its requests; errors have the shape of it. */
  path: string;
  /** A header in which clients of this format look for the request's id, beside `x-request-id`. */
  requestIdHeader?: string;
  /**
   * Reads a request's body in the order that the spec's refusals have.
   * @param body parsed JSON, whatever it is
   * @throws ApiError 400, 403, 404
   */
  read(body: unknown, catalogue: Catalogue, caller: InferenceIdentity): FormatRequest;
}

/** A request, checked: the order inside it, and how its answer is written. */
export interface FormatRequest {
  order: Order;
  /** Writer of a streamed answer. */
  stream(admitted: Admitted): StreamWriter;
  /** Writer of a plain answer. */
  plain(admitted: Admitted): PlainWriter;
}

/** Writes the events of one streamed answer. Each method gives text for the wire. */
export interface StreamWriter {
  /** Sent when nothing came for a while; clients pass it over. */
  readonly beat: string;
  /** Events of the pieces; those that came together leave together. Empty: nothing to send yet. */
  pieces(pieces: readonly Piece[]): string;
  /** All that is held back until the answer is settled: what is still open, the reason, the counters, the end mark. */
  end(completed: Completed): string;
  /**
   * Ends an answer that broke off, so that no client takes the part for the whole.
   * @param body the error in the shape of the format
   */
  broken(body: object): string;
}

/** Gathers the pieces of a plain answer. */
export interface PlainWriter {
  add(pieces: readonly Piece[]): void;
  /** The body, written as JSON. */
  body(completed: Completed): object;
}
