import { NatsBus } from '@nebo/bus';
import { findNats, startNats } from '@nebo/test-kit';
import { auditIntakeTests } from '../../test/audit-intake.js';

const { found, reason } = findNats();

(found === null ? describe.skip : describe)(
  `lines of other services in the audit log, over NATS${found === null ? ` (skipped: ${reason})` : ''}`,
  () => {
    auditIntakeTests(async () => {
      const nats = await startNats();
      const bus = new NatsBus({ servers: nats.url });
      return {
        bus,
        stop: async () => {
          await bus.close();
          await nats.stop();
        },
      };
    });
  },
);
