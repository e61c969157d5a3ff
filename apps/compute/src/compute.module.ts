import { Module } from '@nestjs/common';
import { Changes, Epochs, Lives, type ServiceDefinition } from '@nebo/service-kit';
import { AgentController } from './agent/agent.controller.js';
import { ObservedService } from './agent/observed.service.js';
import { WantedService } from './agent/wanted.service.js';
import { BackupLifecycle } from './backups/backup.lifecycle.js';
import { BackupsController } from './backups/backups.controller.js';
import { BackupsService } from './backups/backups.service.js';
import { RestoresService } from './backups/restores.service.js';
import { Blobs } from './blobs/blobs.js';
import { Housekeeping } from './blobs/housekeeping.js';
import { CatalogueController } from './catalogue/catalogue.controller.js';
import { CatalogueService } from './catalogue/catalogue.service.js';
import { ImagesService } from './catalogue/images.service.js';
import { OperatorController } from './catalogue/operator.controller.js';
import { Prices } from './catalogue/prices.js';
import { InternalController } from './internal/internal.controller.js';
import { InventoryController } from './internal/inventory.controller.js';
import { RegionInventoryController } from './inventory/region-inventory.controller.js';
import { RegionInventories } from './inventory/region-inventory.service.js';
import { Capacity } from './regions/capacity.service.js';
import { RegionQueueLifecycle } from './regions/queue.lifecycle.js';
import { RegionsController } from './regions/regions.controller.js';
import { RegionsService } from './regions/regions.service.js';
import { hears } from './hears.js';
import { SshKeysController } from './ssh-keys/ssh-keys.controller.js';
import { SshKeysService } from './ssh-keys/ssh-keys.service.js';
import { StandingService } from './standing/standing.service.js';
import { PeriodLifecycle } from './vms/period.lifecycle.js';
import { PowerController } from './vms/power.controller.js';
import { ResizeLifecycle } from './vms/resize.lifecycle.js';
import { VmAddresses } from './vms/vm-addresses.js';
import { VmLifecycle } from './vms/vm.lifecycle.js';
import { VmMoney } from './vms/vm-money.js';
import { VmOrdersService } from './vms/vm-orders.service.js';
import { VmPorts } from './vms/vm-ports.js';
import { VmRenewals } from './vms/vm-renewals.service.js';
import { VmResizes } from './vms/vm-resizes.service.js';
import { VmSpanLifecycle } from './vms/vm-span.lifecycle.js';
import { VmsController } from './vms/vms.controller.js';
import { VmsService } from './vms/vms.service.js';

/**
 * Regions and their agents, what can be ordered there, SSH keys, machines from the order to the end, their backups, and the
 * bytes of images and backups.
 */
@Module({
  controllers: [
    RegionsController,
    CatalogueController,
    OperatorController,
    SshKeysController,
    VmsController,
    PowerController,
    BackupsController,
    AgentController,
    InternalController,
    InventoryController,
    RegionInventoryController,
  ],
  providers: [
    Changes,
    Capacity,
    RegionsService,
    RegionQueueLifecycle,
    Prices,
    CatalogueService,
    Blobs,
    Housekeeping,
    ImagesService,
    SshKeysService,
    VmMoney,
    VmPorts,
    VmAddresses,
    VmOrdersService,
    VmsService,
    BackupsService,
    RestoresService,
    Epochs,
    WantedService,
    ObservedService,
    RegionInventories,
    VmLifecycle,
    VmRenewals,
    VmResizes,
    ResizeLifecycle,
    VmSpanLifecycle,
    StandingService,
    PeriodLifecycle,
    BackupLifecycle,
    Lives.of(
      VmLifecycle,
      PeriodLifecycle,
      BackupLifecycle,
      ResizeLifecycle,
      VmSpanLifecycle,
      RegionQueueLifecycle,
    ),
  ],
})
export class ComputeModule {}

export const compute: ServiceDefinition = {
  name: 'compute',
  module: ComputeModule,
  migrations: new URL('../prisma/migrations/', import.meta.url),
  hears,
};
