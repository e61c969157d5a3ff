import { type AnswerKind, type Protocol } from './metrics.js';

/** One answered request, for the access log. Queries are left out: they may hold secrets. */
export interface AccessEntry {
  /** ISO time of the request's head. */
  at: string;
  request_id: string;
  method: string;
  /** Normalised; null when the request was refused before it had one. */
  host: string | null;
  path: string;
  secure: boolean;
  remote: string;
  user_agent: string | null;
  kind: AnswerKind;
  /** 499 when the client left before the head of the answer. */
  status: number;
  /** HTTP/1 or HTTP/2. */
  protocol: Protocol;
  /** Sent: with HTTP/1 head included, with HTTP/2 of the body. */
  bytes: number;
  duration_ms: number;
  /** The answer did not reach its end. */
  aborted: boolean;
  account_id: string | null;
  app_id: string | null;
  build_id: string | null;
  replica_id: string | null;
  retries: number;
}

export type AccessHook = (entry: AccessEntry) => void;
