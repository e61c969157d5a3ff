import { Readable } from 'node:stream';
import { Controller, Get, Query, Res } from '@nestjs/common';
import { type KeyIdentity, Operation, UsageExportQuery, UsageQuery, V1Usage } from '@nebo/contracts';
import { Caller } from '@nebo/service-kit';
import type { FastifyReply } from 'fastify';
import { usageFile, usageFormats } from './usage-file.js';
import { UsageService } from './usage.service.js';

/** What an account's keys used of models, and its apps on demand. */
@Controller('v1')
export class UsageController {
  constructor(private readonly usage: UsageService) {}

  @Get('usage')
  @Operation({
    id: 'usage_get_report',
    tag: 'usage',
    summary: 'Charged usage of models by day, model and key, and of apps on demand, with exact totals',
    permission: 'billing:read',
    resource: 'account',
    answer: V1Usage,
  })
  report(@Caller() caller: KeyIdentity, @Query() query: UsageQuery) {
    return this.usage.report(caller.account_id, query);
  }

  @Get('usage/export')
  @Operation({
    id: 'usage_export',
    tag: 'usage',
    summary: 'Every charged request of a model as a file, oldest first, streamed',
    permission: 'billing:read',
    resource: 'account',
    media: ['text/csv', 'application/x-ndjson'],
  })
  async export(@Caller() caller: KeyIdentity, @Query() query: UsageExportQuery, @Res() reply: FastifyReply) {
    const format = usageFormats[query.format];
    const pages = await this.usage.lines(caller.account_id, query);
    void reply
      .header('content-type', format.type)
      .header('content-disposition', `attachment; filename="usage.${format.extension}"`)
      .header('cache-control', 'no-store')
      .send(Readable.from(usageFile(format, pages)));
  }
}
