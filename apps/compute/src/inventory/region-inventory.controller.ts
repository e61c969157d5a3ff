import { Body, Controller, Get, HttpCode, Param, Post, Query, Res } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import {
  type AgentIdentity,
  type InventoryPart,
  type InventoryWanted,
  type RegionInventory,
  type RegionThing,
  type ServiceIdentity,
} from '@nebo/contracts';
import { CallingAgent, CallingService, clientGone, validationError } from '@nebo/service-kit';
import type { FastifyReply } from 'fastify';
import { RegionInventories } from './region-inventory.service.js';

const mostThings = 2_000;

/** An audit asks what a region's host has, and its agent answers (libs/contracts/src/internal/inventory.ts). */
@ApiExcludeController()
@Controller()
export class RegionInventoryController {
  constructor(private readonly inventories: RegionInventories) {}

  @Post('internal/v1/operator/regions/:region_id/inventory')
  ask(@CallingService() _caller: ServiceIdentity, @Param('region_id') regionId: string) {
    return this.inventories.ask(regionId);
  }

  /** @throws ApiError 404, 422 for a number that is none */
  @Get('internal/v1/operator/regions/:region_id/inventory')
  read(
    @CallingService() _caller: ServiceIdentity,
    @Param('region_id') regionId: string,
    @Query('number') number: unknown,
    @Query('after') after: unknown,
  ): Promise<RegionInventory> {
    if (typeof number !== 'string' || !/^\d{1,9}$/.test(number)) throw refuse(['query', 'number']);
    return this.inventories.read(regionId, Number(number), typeof after === 'string' ? after : null);
  }

  @Get('agent/v1/compute/inventory')
  wanted(
    @CallingAgent() agent: AgentIdentity,
    @Query('wait') wait: unknown,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<InventoryWanted> {
    const seconds = typeof wait === 'string' && /^\d{1,3}$/.test(wait) ? Math.min(60, Number(wait)) : 0;
    return this.inventories.wanted(agent, seconds * 1_000, clientGone(reply));
  }

  @Post('agent/v1/compute/inventory')
  @HttpCode(200)
  async tell(@CallingAgent() agent: AgentIdentity, @Body() body: unknown): Promise<object> {
    await this.inventories.take(agent, parsePart(body));
    return {};
  }
}

const refuse = (loc: (string | number)[]) =>
  validationError([{ loc, msg: 'is not what the contract says', type: 'value_error' }]);
const isText = (value: unknown, max: number): value is string =>
  typeof value === 'string' && value.length > 0 && value.length <= max && !value.includes('\0');

/** Checked by hand: it may hold thousands. @throws ApiError 422 naming the thing */
export function parsePart(body: unknown): InventoryPart {
  const { number, things, last } = (typeof body === 'object' && body !== null ? body : {}) as Partial<
    Record<keyof InventoryPart, unknown>
  >;
  if (typeof number !== 'number' || !Number.isInteger(number) || number < 1 || number > 2 ** 31 - 1)
    throw refuse(['body', 'number']);
  if (!Array.isArray(things) || things.length > mostThings) throw refuse(['body', 'things']);
  const found = things.map((thing: unknown, index): RegionThing => {
    const { kind, id, of, state } = (typeof thing === 'object' && thing !== null ? thing : {}) as Partial<
      Record<keyof RegionThing, unknown>
    >;
    if (!isText(kind, 40) || !/^[a-z_]+$/.test(kind) || !isText(id, 500))
      throw refuse(['body', 'things', index]);
    const owner = isText(of, 200) ? of : null;
    return { kind, id, of: owner, state: isText(state, 200) ? state : null };
  });
  return { number, things: found, last: last === true };
}
