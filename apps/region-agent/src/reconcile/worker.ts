import { type Wanted } from '@nebo/contracts';

/** Makes one thing real. */
export interface Worker {
  /** What is wanted now; an older generation than one known is ignored. */
  want(item: Wanted): void;
  /** The control plane does not know it any more: end it and forget it. */
  vanished(): Promise<void>;
  /** The agent stops. */
  stop(): Promise<void>;
}
