/** Starts this service alone: `nx serve dns`. */
import { runAlone } from '@nebo/service-kit';
import { dns } from './dns.module.js';

await runAlone(dns);
