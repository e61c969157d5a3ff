import { Body, Controller, Get, HttpCode, Post, Query, Res } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { AgentIdentity, WantedAnswer } from '@nebo/contracts';
import { CallingAgent, clientGone, idOrNull, pollMs } from '@nebo/service-kit';
import type { FastifyReply } from 'fastify';
import { parseObserved } from './messages.js';
import { ObservedService } from './observed.service.js';
import { WantedService } from './wanted.service.js';

/** What a region's agent says and asks (libs/contracts/src/agent). The gateway has checked its token. */
@ApiExcludeController()
@Controller('agent/v1/networking')
export class AgentController {
  constructor(
    private readonly wanted: WantedService,
    private readonly observed: ObservedService,
  ) {}

  @Get('wanted')
  getWanted(
    @CallingAgent() agent: AgentIdentity,
    @Query('since') since: unknown,
    @Query('wait') wait: unknown,
    @Query('after') after: unknown,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<WantedAnswer> {
    const cursor = typeof since === 'string' ? since : null;
    const next = typeof after === 'string' ? idOrNull(after) : null;
    return this.wanted.since(agent, cursor, pollMs(wait), clientGone(reply), next);
  }

  @Post('observed')
  @HttpCode(200)
  async postObserved(
    @CallingAgent() agent: AgentIdentity,
    @Body() body: unknown,
  ): Promise<{ taken: number }> {
    return { taken: await this.observed.take(agent, parseObserved(body)) };
  }
}
