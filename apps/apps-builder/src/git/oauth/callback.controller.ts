import { Controller, Get, Query, Res } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { FastifyReply } from 'fastify';
import { type CallbackQuery, CallbackService } from './callback.service.js';
import { pageHeaders, pageHtml } from './page.js';

/** `GET {public}/hooks/git/oauth/callback` of browsers, as the gateway hands it on: the state opens it, no key. */
@ApiExcludeController()
@Controller('internal/v1/git/oauth/callback')
export class CallbackController {
  constructor(private readonly callback: CallbackService) {}

  @Get()
  async take(@Query() query: CallbackQuery, @Res() reply: FastifyReply): Promise<void> {
    const page = await this.callback.take(query);
    await reply.status(page.status).headers(pageHeaders).send(pageHtml(page));
  }
}
