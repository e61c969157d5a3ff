import type { Nano } from '@nebo/contracts';
import type { Counters } from '../dialects/dialect.js';

/**
 * How a request ended. complete: answered and billed. uncounted: answered without counters, free. aborted: the client
 * left. drained: it left, and the answer was read to its counters. broken: the upstream broke off. failed: no upstream
 * answered, or the settlement failed. stopped: this service was stopped.
 */
export type Outcome = 'complete' | 'uncounted' | 'aborted' | 'drained' | 'broken' | 'failed' | 'stopped';

/** One request, without any of its content. */
export interface RequestRecord {
  operationId: string;
  requestId: string;
  account: string;
  key: string;
  format: string;
  model: string;
  upstream: string | null;
  streamed: boolean;
  /** What the client saw; 499: it had left. */
  status: number;
  outcome: Outcome;
  finish: string | null;
  counters: Counters | null;
  priceVersion: number;
  cost: Nano;
  /** About what an unbilled abort took; for the share that drain mode looks at, never billed. */
  forgone: Nano;
  startedAt: Date;
  firstByteAt: Date | null;
  endedAt: Date;
}
