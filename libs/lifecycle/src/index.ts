export { seconds, minutes, hours, humanDuration } from './duration.js';
export {
  Lifecycle,
  State,
  statesOf,
  type Change,
  type Effect,
  type Outcome,
  type StateDefinition,
  type StateOptions,
  type StepContext,
} from './lifecycle.js';
export {
  countStates,
  LeaseLost,
  look,
  pruneEnded,
  start,
  wake,
  wakeAll,
  type LifecycleRow,
} from './table.js';
export {
  LifecycleWorker,
  type LifecycleObserver,
  type LifecycleWorkerOptions,
  type StepInfo,
} from './worker.js';
