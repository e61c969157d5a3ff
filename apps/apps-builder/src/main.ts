/** Starts this service alone: `nx serve apps-builder`. */
import { runAlone } from '@nebo/service-kit';
import { appsBuilder } from './apps-builder.module.js';

await runAlone(appsBuilder);
