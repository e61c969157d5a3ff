/** Starts this service alone: `nx serve identity-billing`. */
import { runAlone } from '@nebo/service-kit';
import { identityBilling } from './identity-billing.module.js';

await runAlone(identityBilling);
