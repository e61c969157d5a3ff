/** Starts this service alone: `nx serve networking`. */
import { runAlone } from '@nebo/service-kit';
import { networking } from './networking.module.js';

await runAlone(networking);
