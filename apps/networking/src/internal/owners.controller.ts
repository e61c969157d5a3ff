import { Controller, Get, Param } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { Owner } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { notFound, pathId } from '@nebo/service-kit';

/** Whose a VPC or floating IP is (libs/contracts/src/internal/owners.ts). */
@ApiExcludeController()
@Controller('internal/v1/owners')
export class OwnersController {
  constructor(private readonly database: Database) {}

  /** With its region: what is put into a VPC must lie in the same one. */
  @Get('vpc/:id')
  async vpc(@Param('id') id: string): Promise<Owner> {
    const [found] = await this.database.named<{ account_id: string; region_id: string }>(
      'vpc_home',
      'select account_id, region_id from vpc_home($1)',
      [pathId(id)],
    );
    if (!found) throw notFound();
    return { ...found, project_id: null, parents: [] };
  }

  @Get('floating_ip/:id')
  async floatingIp(@Param('id') id: string): Promise<Owner> {
    const [found] = await this.database.named<{ account_id: string | null }>(
      'floating_ip_owner',
      'select floating_ip_owner($1) as account_id',
      [pathId(id)],
    );
    if (!found?.account_id) throw notFound();
    return { account_id: found.account_id, project_id: null, parents: [] };
  }
}
