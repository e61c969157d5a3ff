import type { BuildState, LogBatch, Observed, ReplicaState, RunState } from '@nebo/contracts';
import { idOrNull, isItem, itemsOf, refuseItem, seenOf, timeOrNull } from '@nebo/service-kit';

const states = {
  build: ['building', 'success', 'error', 'cancelled'] satisfies BuildState[],
  replica: ['starting', 'ready', 'sleeping', 'failed', 'gone'] satisfies ReplicaState[],
  run: ['running', 'success', 'error', 'timeout', 'cancelled'] satisfies RunState[],
} as const;

const maxItems = 5_000;

const maxApps = 1_000;

/** @returns ids of apps @throws ApiError 422 naming the item */
export function parseAppIds(body: unknown): string[] {
  return itemsOf(body, 'app_ids', maxApps).map((id, index) => {
    const known = typeof id === 'string' ? idOrNull(id) : null;
    if (known === null) refuseItem(['app_ids', index], 'must be an id');
    return known;
  });
}

/** @throws ApiError 422 naming the item */
export function parseObserved(body: unknown): Observed[] {
  return itemsOf(body, 'items', maxItems).map((item, index) => {
    const { seen, facts } = seenOf(item, index, states);
    return { ...seen, state: seen.state as Observed['state'], facts };
  });
}

/** @throws ApiError 422 naming the line */
export function parseLogBatch(body: unknown): LogBatch {
  const lines = itemsOf(body, 'lines', maxItems).map((item, index) => {
    const { seq, line, at } = isItem(item) ? item : {};
    const time = timeOrNull(at);
    if (typeof seq !== 'number' || !Number.isSafeInteger(seq) || seq < 0)
      refuseItem(['lines', index], 'must have seq, at and line');
    if (typeof line !== 'string' || time === null) refuseItem(['lines', index], 'must have seq, at and line');
    return { seq, at: time, line };
  });
  return { lines, done: isItem(body) && body['done'] === true };
}
