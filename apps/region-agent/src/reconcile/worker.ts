import { type Wanted } from '@nebo/contracts';

/** Makes one thing real. */
export interface Worker {
  /**
   * What is wanted now; an older generation than one known is ignored.
   * @param full it stands in a full comparison. Machines and networks take an older generation from there: the control plane's
   *   database was restored from a backup, and what it says is the truth again
   */
  want(item: Wanted, full?: boolean): void;
  /** The control plane does not know it any more: end it and forget it. */
  vanished(): Promise<void>;
  /** The agent stops. */
  stop(): Promise<void>;
}
