import { type Readable } from 'node:stream';
import { Controller, Param, Post, Req, Res } from '@nestjs/common';
import { RouteConfig } from '@nestjs/platform-fastify';
import { ApiExcludeController } from '@nestjs/swagger';
import { hookTypeHeader } from '@nebo/contracts';
import { badRequest } from '@nebo/service-kit';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { DeliveriesService } from './deliveries.service.js';

/**
 * `POST {public}/hooks/git/{connection_id}` of git hosts, as the gateway hands it on: it needs no key, the signature is what
 * opens it. The body comes as raw bytes, since that is what was signed.
 */
@ApiExcludeController()
@Controller('internal/v1/hooks/git')
export class HooksController {
  constructor(private readonly deliveries: DeliveriesService) {}

  @Post(':id')
  @RouteConfig({ upload: 'application/octet-stream' })
  async take(
    @Param('id') id: string,
    @Req() request: FastifyRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<object> {
    const given = request.headers[hookTypeHeader];
    const type = typeof given === 'string' ? given.split(';')[0]!.trim().toLowerCase() : '';
    const body = request.body as Readable | undefined;
    if (!body) throw badRequest('bad_request', 'a delivery has a body');
    const answer = await this.deliveries.take(id, request.headers, type, body);
    void reply.status(answer.status);
    return answer.body;
  }
}
