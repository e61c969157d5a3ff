import type { Route } from '../catalogue/catalogue.js';
import type { UpstreamEvent } from './upstream-event.js';

/** Takes an answer as it comes. After `ended` or `failed` nothing comes any more. */
export interface AnswerTaker {
  /**
   * Events that came together. What it returns, if anything, is waited for before more is read.
   * @throws what is wrong with them: the answer ends, and fails with it
   */
  events(events: readonly UpstreamEvent[]): Promise<void> | void;
  /** The answer is complete. */
  ended(): void;
  /** It was not accepted, broke off, or was cancelled: UpstreamError, what `events` threw, or the reason of the cancel. */
  failed(error: Error): void;
}

/** A request under way. */
export interface Sending {
  /** Ends it at once, in whichever phase it is; the taker is told `failed`, unless it was over before. */
  cancel(reason: Error): void;
}

/** A place that answers chat completions: a vendor over HTTP, or the simulator inside this process. */
export interface Upstream {
  send(route: Route, body: Record<string, unknown>, taker: AnswerTaker): Sending;
}
