import { Module } from '@nestjs/common';
import { Changes, Epochs, Lives, type ServiceDefinition } from '@nebo/service-kit';
import { AgentController } from './agent/agent.controller.js';
import { ObservedService } from './agent/observed.service.js';
import { WantedService } from './agent/wanted.service.js';
import { CatalogueController } from './catalogue/catalogue.controller.js';
import { CatalogueService } from './catalogue/catalogue.service.js';
import { OperatorController } from './catalogue/operator.controller.js';
import { Prices } from './catalogue/prices.js';
import { InternalController } from './internal/internal.controller.js';
import { RegionsController } from './regions/regions.controller.js';
import { RegionsService } from './regions/regions.service.js';
import { SshKeysController } from './ssh-keys/ssh-keys.controller.js';
import { SshKeysService } from './ssh-keys/ssh-keys.service.js';
import { PeriodLifecycle } from './vms/period.lifecycle.js';
import { PowerController } from './vms/power.controller.js';
import { VmLifecycle } from './vms/vm.lifecycle.js';
import { VmMoney } from './vms/vm-money.js';
import { VmOrdersService } from './vms/vm-orders.service.js';
import { VmPorts } from './vms/vm-ports.js';
import { VmRenewals } from './vms/vm-renewals.service.js';
import { VmsController } from './vms/vms.controller.js';
import { VmsService } from './vms/vms.service.js';

/**
 * Regions and their agents, what can be ordered there, SSH keys, and machines from the order to the end. Backups and
 * machines billed by the second come later.
 */
@Module({
  controllers: [
    RegionsController,
    CatalogueController,
    OperatorController,
    SshKeysController,
    VmsController,
    PowerController,
    AgentController,
    InternalController,
  ],
  providers: [
    Changes,
    RegionsService,
    Prices,
    CatalogueService,
    SshKeysService,
    VmMoney,
    VmPorts,
    VmOrdersService,
    VmsService,
    Epochs,
    WantedService,
    ObservedService,
    VmLifecycle,
    VmRenewals,
    PeriodLifecycle,
    Lives.of(VmLifecycle, PeriodLifecycle),
  ],
})
export class ComputeModule {}

export const compute: ServiceDefinition = {
  name: 'compute',
  module: ComputeModule,
  migrations: new URL('../prisma/migrations/', import.meta.url),
};
