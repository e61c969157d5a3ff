import { EmbeddedBus } from '@nebo/bus';
import { auditIntakeTests } from '../../test/audit-intake.js';

describe('lines of other services in the audit log, over the embedded bus', () => {
  auditIntakeTests(async () => {
    const bus = new EmbeddedBus();
    return { bus, stop: () => bus.close() };
  });
});
