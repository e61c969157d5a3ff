import { Module } from '@nestjs/common';
import { Changes, Epochs, Lives, type ServiceDefinition } from '@nebo/service-kit';
import { AgentController } from './agent/agent.controller.js';
import { ObservedService } from './agent/observed.service.js';
import { WantedService } from './agent/wanted.service.js';
import { AppsController } from './apps/apps.controller.js';
import { AppsService } from './apps/apps.service.js';
import { BuildLifecycle } from './builds/build.lifecycle.js';
import { BuildLog } from './builds/build-log.js';
import { BuildsController } from './builds/builds.controller.js';
import { BuildsService } from './builds/builds.service.js';
import { DeployStatus } from './builds/deploy-status.js';
import { UploadsService } from './builds/uploads.service.js';
import { DeliveriesController } from './deliveries/deliveries.controller.js';
import { DeliveriesService } from './deliveries/deliveries.service.js';
import { HooksController } from './deliveries/hooks.controller.js';
import { Authority } from './certificates/acme/authority.js';
import { CertificateLifecycle } from './certificates/certificate.lifecycle.js';
import {
  CertificatesController,
  EdgeCertificatesController,
} from './certificates/certificates.controller.js';
import { CertificatesService } from './certificates/certificates.service.js';
import { DomainLifecycle } from './domains/domain.lifecycle.js';
import { DomainProof } from './domains/domain-proof.js';
import { DomainsController } from './domains/domains.controller.js';
import { DomainsService } from './domains/domains.service.js';
import { NameLookup } from './domains/name-lookup.js';
import { EnvController } from './env/env.controller.js';
import { EnvService } from './env/env.service.js';
import { ConnectionsController } from './git/connections.controller.js';
import { ConnectionsService } from './git/connections.service.js';
import { GitHosts } from './git/git-hosts.js';
import { GitReach } from './git/git-reach.js';
import { hears } from './hears.js';
import { InternalController } from './internal/internal.controller.js';
import { InventoryController } from './internal/inventory.controller.js';
import { RoutesService } from './internal/routes.service.js';
import { JobLifecycle } from './jobs/job.lifecycle.js';
import { JobRunLifecycle } from './jobs/job-run.lifecycle.js';
import { JobsController } from './jobs/jobs.controller.js';
import { JobsService } from './jobs/jobs.service.js';
import { MissedTicks } from './jobs/missed-ticks.js';
import { RunLog } from './jobs/run-log.js';
import { PortLifecycle } from './networks/port.lifecycle.js';
import { VpcReferences } from './networks/vpc-reference.js';
import { ReplicaMoney } from './rollouts/money.js';
import { RolloutLifecycle } from './rollouts/rollout.lifecycle.js';
import { RuntimeLog } from './rollouts/runtime-log.js';
import { RuntimeLogController } from './rollouts/runtime-log.controller.js';
import { SpanLifecycle } from './rollouts/span.lifecycle.js';
import { Blobs } from './shared/blobs.js';
import { Housekeeping } from './shared/housekeeping.js';
import { Store } from './shared/prisma.js';
import { Regions } from './shared/regions.js';
import { Settings } from './shared/settings.js';
import { CommitStatusLifecycle } from './sources/commit-status.lifecycle.js';
import { HookLifecycle } from './sources/hook.lifecycle.js';
import { PushLifecycle } from './sources/push.lifecycle.js';
import { SourcesService } from './sources/sources.service.js';
import { UsageFaults } from './usage/usage-faults.js';
import { UsageHourLifecycle } from './usage/usage-hour.lifecycle.js';
import { UsageIntake } from './usage/usage-intake.service.js';
import { StandingService } from './standing/standing.service.js';

/**
 * Apps from a folder or a git repository to what answers at the edge: sources, builds, revisions, replicas, routes,
 * variables, logs, jobs.
 */
@Module({
  controllers: [
    AppsController,
    BuildsController,
    EnvController,
    DomainsController,
    CertificatesController,
    EdgeCertificatesController,
    RuntimeLogController,
    JobsController,
    ConnectionsController,
    DeliveriesController,
    AgentController,
    InternalController,
    InventoryController,
    HooksController,
  ],
  providers: [
    Settings,
    Store,
    Changes,
    Regions,
    Blobs,
    AppsService,
    BuildsService,
    UploadsService,
    BuildLog,
    DeployStatus,
    EnvService,
    RuntimeLog,
    JobsService,
    MissedTicks,
    RunLog,
    Epochs,
    WantedService,
    ObservedService,
    RoutesService,
    GitHosts,
    GitReach,
    ConnectionsService,
    SourcesService,
    DeliveriesService,
    NameLookup,
    DomainProof,
    DomainsService,
    Authority,
    CertificatesService,
    ReplicaMoney,
    VpcReferences,
    DomainLifecycle,
    CertificateLifecycle,
    BuildLifecycle,
    RolloutLifecycle,
    SpanLifecycle,
    PortLifecycle,
    HookLifecycle,
    PushLifecycle,
    CommitStatusLifecycle,
    JobLifecycle,
    JobRunLifecycle,
    UsageFaults,
    UsageIntake,
    UsageHourLifecycle,
    Lives.of(
      DomainLifecycle,
      CertificateLifecycle,
      BuildLifecycle,
      RolloutLifecycle,
      SpanLifecycle,
      PortLifecycle,
      HookLifecycle,
      PushLifecycle,
      CommitStatusLifecycle,
      JobLifecycle,
      JobRunLifecycle,
      UsageHourLifecycle,
    ),
    Housekeeping,
    StandingService,
  ],
})
export class AppsBuilderModule {}

export const appsBuilder: ServiceDefinition = {
  name: 'apps-builder',
  module: AppsBuilderModule,
  migrations: new URL('../prisma/migrations/', import.meta.url),
  hears,
  // Log batches of agents are larger than what users send.
  bodyLimit: 4 * 1024 * 1024,
};
