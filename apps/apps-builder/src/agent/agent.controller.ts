import { Body, Controller, Get, HttpCode, Param, Post, Put, Query, Req, Res } from '@nestjs/common';
import { RouteConfig } from '@nestjs/platform-fastify';
import { ApiExcludeController } from '@nestjs/swagger';
import type { AgentIdentity, BlobRef, GoneAppsAnswer, UsageTaken, WantedAnswer } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { CallingAgent, clientGone, Epochs, notFound, pathId, pollMs } from '@nebo/service-kit';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { BuildLog } from '../builds/build-log.js';
import { RunLog } from '../jobs/run-log.js';
import { RuntimeLog } from '../rollouts/runtime-log.js';
import { Blobs } from '../shared/blobs.js';
import { Settings } from '../shared/settings.js';
import { UsageIntake } from '../usage/usage-intake.service.js';
import { parseUsage } from '../usage/usage-report.js';
import { parseAppIds, parseLogBatch, parseObserved } from './messages.js';
import { ObservedService } from './observed.service.js';
import { WantedService } from './wanted.service.js';

/** What a region's agent says and asks (libs/contracts/src/agent). The gateway has checked its token. */
@ApiExcludeController()
@Controller('agent/v1/apps-builder')
export class AgentController {
  constructor(
    private readonly wanted: WantedService,
    private readonly observed: ObservedService,
    private readonly epochs: Epochs,
    private readonly buildLog: BuildLog,
    private readonly runtimeLog: RuntimeLog,
    private readonly runLog: RunLog,
    private readonly usage: UsageIntake,
    private readonly blobs: Blobs,
    private readonly database: Database,
    private readonly settings: Settings,
  ) {}

  @Get('wanted')
  getWanted(
    @CallingAgent() agent: AgentIdentity,
    @Query('since') since: unknown,
    @Query('wait') wait: unknown,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<WantedAnswer> {
    return this.wanted.since(
      agent,
      typeof since === 'string' ? since : null,
      pollMs(wait),
      clientGone(reply),
    );
  }

  @Post('observed')
  @HttpCode(200)
  async postObserved(
    @CallingAgent() agent: AgentIdentity,
    @Body() body: unknown,
  ): Promise<{ taken: number }> {
    return { taken: await this.observed.take(agent, parseObserved(body)) };
  }

  /** What lives of processes used: totals, so that a repeat changes nothing. */
  @Post('usage')
  @HttpCode(200)
  postUsage(@CallingAgent() agent: AgentIdentity, @Body() body: unknown): Promise<UsageTaken> {
    return this.usage.take(agent, parseUsage(body, this.settings.usageBucketMs));
  }

  @Post('log/:stream')
  @HttpCode(200)
  async postLog(
    @CallingAgent() agent: AgentIdentity,
    @Param('stream') stream: string,
    @Body() body: unknown,
  ): Promise<object> {
    const id = pathId(stream);
    const batch = parseLogBatch(body);
    await this.database.transaction(async (tx) => {
      await this.epochs.check(tx, agent);
      const known =
        (await this.buildLog.append(tx, agent.region_id, id, batch)) ||
        (await this.runtimeLog.append(tx, agent.region_id, id, batch)) ||
        (await this.runLog.append(tx, agent.region_id, id, batch));
      if (!known) throw notFound();
    });
    return {};
  }

  /** A region keeps caches of builds: of apps that have been deleted it shall not. */
  @Post('gone-apps')
  @HttpCode(200)
  postGoneApps(@CallingAgent() agent: AgentIdentity, @Body() body: unknown): Promise<GoneAppsAnswer> {
    const ids = parseAppIds(body);
    return this.database.transaction(async (tx) => {
      await this.epochs.check(tx, agent);
      const gone = await tx.query<{ id: string }>(
        `select asked.id from unnest($1::uuid[]) as asked (id)
         where not exists (select from app a where a.id = asked.id and a.region_id = $2::uuid and a.deleted_at is null)`,
        [ids, agent.region_id],
      );
      return { gone: gone.map(({ id }) => id) };
    });
  }

  @Get('blob/:sha256')
  async getBlob(
    @CallingAgent() agent: AgentIdentity,
    @Param('sha256') sha256: string,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    await this.database.transaction((tx) => this.epochs.check(tx, agent));
    await this.blobs.read(sha256, agent.region_id, reply);
  }

  /** An artifact; the observation that names it makes it a build's. */
  @Put('blob/:sha256')
  @RouteConfig({ upload: 'application/octet-stream' })
  async putBlob(
    @CallingAgent() agent: AgentIdentity,
    @Param('sha256') sha256: string,
    @Req() request: FastifyRequest,
  ): Promise<BlobRef> {
    await this.database.transaction((tx) => this.epochs.check(tx, agent));
    return this.blobs.receive(request, { sha256, limit: this.settings.artifactBytes, what: 'an artifact' });
  }
}
