import { Module } from '@nestjs/common';
import type { ServiceDefinition } from '@nebo/service-kit';
import { AccountsController, AccountsInternalController } from './accounts/accounts.controller.js';
import { AccountsService } from './accounts/accounts.service.js';
import { AuditController, AuditInternalController } from './audit/audit.controller.js';
import { AuditIntake } from './audit/audit-intake.js';
import { AuditService } from './audit/audit.service.js';
import { PrismaService } from './database/prisma.service.js';
import { hears } from './events.js';
import { KeysInternalController } from './keys/keys.controller.js';
import { KeysService } from './keys/keys.service.js';
import { BalanceService } from './ledger/balance.service.js';
import { DepositsService } from './ledger/deposits.service.js';
import { LedgerController } from './ledger/ledger.controller.js';
import { MoneyController } from './ledger/money.controller.js';
import { MoneyService } from './ledger/money.service.js';
import { MoneyWorkers } from './ledger/money.workers.js';
import { ReconcileService } from './ledger/reconcile.service.js';
import { ComputeUsageService } from './ledger/compute-usage.service.js';
import { SpansService } from './ledger/spans.service.js';
import { MembersService } from './members/members.service.js';
import { BillingMetrics } from './observe/billing-metrics.js';
import { InventoryController } from './operator/inventory.controller.js';
import { OperatorController } from './operator/operator.controller.js';
import { PricesController } from './prices/prices.controller.js';
import { PricesService } from './prices/prices.service.js';
import { ProjectsController, ProjectsInternalController } from './projects/projects.controller.js';
import { ProjectsService } from './projects/projects.service.js';
import { RateController } from './rate/rate.controller.js';
import { RateService } from './rate/rate.service.js';
import { Settings } from './settings.js';
import { Recalls } from './slices/recalls.js';
import { SlicesController, SlicesOperatorController } from './slices/slices.controller.js';
import { SlicesOperations } from './slices/slices.operations.js';
import { SettleService } from './slices/settle.service.js';
import { SlicesService } from './slices/slices.service.js';
import { StandingController } from './standing/standing.controller.js';
import { StandingService } from './standing/standing.service.js';
import { UsageController } from './usage/usage.controller.js';
import { UsageExport, UsageTable } from './usage/usage-export.js';
import { AppsUsage } from './usage/apps-usage.service.js';
import { UsageService } from './usage/usage.service.js';

/** Who may do what, and what it costs: accounts, projects, keys, the ledger, prices, the audit log. */
@Module({
  controllers: [
    AccountsController,
    AccountsInternalController,
    AuditController,
    AuditInternalController,
    InventoryController,
    KeysInternalController,
    LedgerController,
    MoneyController,
    OperatorController,
    PricesController,
    ProjectsController,
    ProjectsInternalController,
    RateController,
    SlicesController,
    SlicesOperatorController,
    StandingController,
    UsageController,
  ],
  providers: [
    Settings,
    PrismaService,
    AccountsService,
    AuditIntake,
    AuditService,
    BalanceService,
    BillingMetrics,
    DepositsService,
    KeysService,
    MembersService,
    MoneyService,
    MoneyWorkers,
    PricesService,
    ProjectsService,
    RateService,
    Recalls,
    ReconcileService,
    SettleService,
    SlicesOperations,
    SlicesService,
    SpansService,
    ComputeUsageService,
    StandingService,
    UsageTable,
    UsageExport,
    AppsUsage,
    UsageService,
  ],
})
export class IdentityBillingModule {}

export const identityBilling: ServiceDefinition = {
  name: 'identity-billing',
  module: IdentityBillingModule,
  migrations: new URL('../prisma/migrations/', import.meta.url),
  hears,
};
