import { Controller, Get, Headers, Param, Query, Res } from '@nestjs/common';
import { type KeyIdentity, Operation } from '@nebo/contracts';
import { Caller, clientGone, validationError } from '@nebo/service-kit';
import type { FastifyReply } from 'fastify';
import { lastEventId, sendEvents } from '../shared/sse.js';
import { RuntimeLog } from './runtime-log.js';

const maxTail = 10_000;

@Controller('v1')
export class RuntimeLogController {
  constructor(private readonly log: RuntimeLog) {}

  @Get(['projects/:project_id/apps/:app_id/logs', 'apps/:app_id/logs'])
  @Operation({
    id: 'apps_stream_runtime_logs',
    flatId: 'apps_stream_runtime_logs_by_id',
    tag: 'apps',
    summary: 'What the replicas print: the last lines, then live',
    permission: 'app:read',
    resource: 'app',
    stream: true,
    query: [
      {
        name: 'tail',
        required: false,
        schema: { type: 'integer', minimum: 0, maximum: maxTail, default: 200 },
        description: 'Lines of history',
      },
      {
        name: 'follow',
        required: false,
        schema: { type: 'boolean', default: true },
        description: 'False: end with done after the history',
      },
    ],
  })
  async stream(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Query('tail') tail: unknown,
    @Query('follow') follow: unknown,
    @Headers('last-event-id') last: string | undefined,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const query = { tail: tailOf(tail), follow: followOf(follow), after: lastEventId(last) };
    sendEvents(reply, await this.log.open(caller, project ?? null, app, query, clientGone(reply)));
  }
}

function tailOf(tail: unknown): number {
  if (tail === undefined) return 200;
  if (typeof tail === 'string' && /^\d{1,5}$/.test(tail) && Number(tail) <= maxTail) return Number(tail);
  throw validationError([
    { loc: ['query', 'tail'], msg: `must be a whole number from 0 to ${maxTail}`, type: 'int_type' },
  ]);
}

function followOf(follow: unknown): boolean {
  if (follow === undefined || follow === 'true') return true;
  if (follow === 'false') return false;
  throw validationError([{ loc: ['query', 'follow'], msg: 'must be true or false', type: 'bool_type' }]);
}
