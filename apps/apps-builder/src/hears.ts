import { on } from '@nebo/bus';
import { accountResumed, accountSuspended } from '@nebo/contracts';
import { StandingService } from './standing/standing.service.js';

/** All that this service hears: that the standing of an account has changed. */
export const hears = [
  on(accountSuspended, 'apps-builder-account-suspended', StandingService),
  on(accountResumed, 'apps-builder-account-resumed', StandingService),
];
