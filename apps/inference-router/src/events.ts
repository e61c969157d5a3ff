import { inferenceEvents, priceChanged, sliceRecall } from '@nebo/contracts';

/** All that this service says. */
export const says = inferenceEvents;

/** All that it hears, in every replica: hints, whose truth is asked for. The parts that need them subscribe themselves. */
export const hears = { modelChanged: inferenceEvents.modelChanged, priceChanged, sliceRecall };
