import { on } from '@nebo/bus';
import { accountResumed, accountSuspended, dnsEvents, keyChanged } from '@nebo/contracts';
import { wakeDomainsOf } from './domains/zone-watch.js';
import { endAuthorizationsOf } from './git/oauth/key-watch.js';
import { StandingService } from './standing/standing.service.js';

/** All that this service hears: that the standing of an account, the delegation of a zone or a key has changed. */
export const hears = [
  on(accountSuspended, 'apps-builder-account-suspended', StandingService),
  on(accountResumed, 'apps-builder-account-resumed', StandingService),
  on(dnsEvents.zoneStatus, 'apps-builder-zone-status', wakeDomainsOf),
  on(keyChanged, 'apps-builder-key-changed', endAuthorizationsOf),
];
