import { Body, Controller, Delete, Get, HttpCode, Param, Post, Query, Res } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { Owner, ProjectUsage, RoutesAnswer, RoutesApplied } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { clientGone, idOrNull, notFound, pathId, validationError } from '@nebo/service-kit';
import type { FastifyReply } from 'fastify';
import { AppsService } from '../apps/apps.service.js';
import { Blobs } from '../shared/blobs.js';
import { RoutesService } from './routes.service.js';

/** What other services and the edge ask of this one (libs/contracts/src/internal/{owners,routes}.ts). */
@ApiExcludeController()
@Controller('internal/v1')
export class InternalController {
  constructor(
    private readonly database: Database,
    private readonly apps: AppsService,
    private readonly routes: RoutesService,
    private readonly blobs: Blobs,
  ) {}

  @Get('owners/app/:id')
  async owner(@Param('id') id: string): Promise<Owner> {
    const [owner] = await this.database.named<{ account_id: string; project_id: string }>(
      'app_owner',
      'select * from app_owner($1)',
      [pathId(id)],
    );
    if (!owner) throw notFound();
    return { ...owner, parents: [] };
  }

  @Get('routes')
  getRoutes(
    @Query('since') since: unknown,
    @Query('wait') wait: unknown,
    @Query('edge') edge: unknown,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<RoutesAnswer> {
    const seconds = typeof wait === 'string' && /^\d{1,3}$/.test(wait) ? Math.min(60, Number(wait)) : 0;
    return this.routes.since(
      typeof since === 'string' ? since : null,
      seconds * 1_000,
      clientGone(reply),
      edge === undefined ? null : edgeName(edge, 'query'),
    );
  }

  @Post('routes/applied')
  @HttpCode(200)
  async applied(@Body() body: unknown): Promise<{ confirmed: number }> {
    return { confirmed: await this.routes.applied(parseApplied(body)) };
  }

  @Delete('edges/:id')
  @HttpCode(204)
  async leave(@Param('id') id: string): Promise<void> {
    await this.routes.leave(edgeName(id, 'path'));
  }

  @Get('blobs/:sha256')
  async blob(@Param('sha256') sha256: string, @Res() reply: FastifyReply): Promise<void> {
    await this.blobs.read(sha256, null, reply);
  }

  @Get('projects/:id/usage')
  async usage(@Param('id') id: string): Promise<ProjectUsage & { apps: number }> {
    const count = await this.apps.countIn(id);
    return { count, apps: count };
  }
}

/** The name that an edge has given itself. @throws ApiError 422 */
function edgeName(value: unknown, place: 'query' | 'path' | 'body'): string {
  if (typeof value === 'string' && /^[\w.-]{1,64}$/.test(value)) return value;
  const msg = 'must be 1 to 64 letters, digits, dots, hyphens or underscores';
  throw validationError([{ loc: [place, 'edge'], msg, type: 'value_error' }]);
}

/** By hand: an edge confirms all its routes at once. @throws ApiError 422 */
function parseApplied(body: unknown): RoutesApplied {
  const { version, routes, edge } = (body ?? {}) as Partial<RoutesApplied>;
  const refuse = (field: string, msg: string) =>
    validationError([{ loc: ['body', field], msg, type: 'value_error' }]);
  if (typeof version !== 'string') throw refuse('version', 'must be a text');
  const said = edge === undefined ? { version } : { version, edge: edgeName(edge, 'body') };
  if (routes === undefined) return said;
  const valid =
    Array.isArray(routes) &&
    routes.every(
      (route) =>
        typeof route?.host === 'string' &&
        !route.host.includes('\0') &&
        (route.build_id === null || idOrNull(String(route.build_id)) !== null),
    );
  if (!valid) throw refuse('routes', 'must be a list of {host, build_id}');
  return { ...said, routes: routes.map(({ host, build_id }) => ({ host, build_id })) };
}
