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

  @Get('vpc/:id')
  vpc(@Param('id') id: string): Promise<Owner> {
    return this.owner('vpc_owner', id);
  }

  @Get('floating_ip/:id')
  floatingIp(@Param('id') id: string): Promise<Owner> {
    return this.owner('floating_ip_owner', id);
  }

  private async owner(name: 'vpc_owner' | 'floating_ip_owner', id: string): Promise<Owner> {
    const [found] = await this.database.named<{ account_id: string | null }>(
      name,
      `select ${name}($1) as account_id`,
      [pathId(id)],
    );
    if (!found?.account_id) throw notFound();
    return { account_id: found.account_id, project_id: null, parents: [] };
  }
}
