import { on } from '@nebo/bus';
import { accountResumed, accountSuspended, balanceEmpty } from '@nebo/contracts';
import { StandingService } from './standing/standing.service.js';

/** All that this service hears: that the standing of an account has changed. */
export const hears = [
  on(balanceEmpty, 'compute-balance-empty', StandingService),
  on(accountSuspended, 'compute-account-suspended', StandingService),
  on(accountResumed, 'compute-account-resumed', StandingService),
];
