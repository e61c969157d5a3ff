/** Starts this service alone: `nx serve inference-router`. */
import { runAlone } from '@nebo/service-kit';
import { inferenceRouter } from './inference-router.module.js';

await runAlone(inferenceRouter);
