import { Body, Controller, Get, HttpCode, Param, Post, Put, Query, Req, Res } from '@nestjs/common';
import { RouteConfig } from '@nestjs/platform-fastify';
import { ApiExcludeController } from '@nestjs/swagger';
import type { AgentIdentity, BlobRef, WantedAnswer } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { CallingAgent, clientGone, Epochs, idOrNull, pollMs } from '@nebo/service-kit';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Blobs } from '../blobs/blobs.js';
import { parseObserved } from './messages.js';
import { ObservedService } from './observed.service.js';
import { WantedService } from './wanted.service.js';

/** What a region's agent says and asks of machines and their backups (libs/contracts/src/agent). The gateway has checked its token. */
@ApiExcludeController()
@Controller('agent/v1/compute')
export class AgentController {
  constructor(
    private readonly wanted: WantedService,
    private readonly observed: ObservedService,
    private readonly epochs: Epochs,
    private readonly blobs: Blobs,
    private readonly database: Database,
  ) {}

  @Get('wanted')
  getWanted(
    @CallingAgent() agent: AgentIdentity,
    @Query('since') since: unknown,
    @Query('wait') wait: unknown,
    @Query('after') after: unknown,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<WantedAnswer> {
    return this.wanted.since(
      agent,
      typeof since === 'string' ? since : null,
      pollMs(wait),
      clientGone(reply),
      typeof after === 'string' ? idOrNull(after) : null,
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

  @Get('blob/:sha256')
  async getBlob(
    @CallingAgent() agent: AgentIdentity,
    @Param('sha256') sha256: string,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    await this.database.transaction((tx) => this.epochs.check(tx, agent));
    await this.blobs.read(sha256, agent.region_id, reply);
  }

  /** The bytes of a backup; the observation that names them makes them its. */
  @Put('blob/:sha256')
  @RouteConfig({ upload: 'application/octet-stream' })
  async putBlob(
    @CallingAgent() agent: AgentIdentity,
    @Param('sha256') sha256: string,
    @Req() request: FastifyRequest,
  ): Promise<BlobRef> {
    await this.database.transaction((tx) => this.epochs.check(tx, agent));
    return this.blobs.receive(request, { sha256, limit: this.blobs.limit, what: 'a backup' });
  }
}
