/** Starts this service alone: `nx serve compute`. */
import { runAlone } from '@nebo/service-kit';
import { compute } from './compute.module.js';

await runAlone(compute);
