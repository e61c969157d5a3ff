import { Controller, Get, Param } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { Owner } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { notFound, pathId } from '@nebo/service-kit';

/** Whose a zone is (libs/contracts/src/internal/owners.ts). */
@ApiExcludeController()
@Controller('internal/v1/owners')
export class OwnersController {
  constructor(private readonly database: Database) {}

  @Get('dns_zone/:id')
  async zone(@Param('id') id: string): Promise<Owner> {
    const [found] = await this.database.named<{ account_id: string | null }>(
      'dns_zone_owner',
      'select dns_zone_owner($1) as account_id',
      [pathId(id)],
    );
    if (!found?.account_id) throw notFound();
    return { account_id: found.account_id, project_id: null, parents: [] };
  }
}
