import { Controller, Get, Param } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { Owner, ProjectUsage } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { notFound, pathId } from '@nebo/service-kit';
import { VmOrdersService } from '../vms/vm-orders.service.js';

/** What other services ask of this one (libs/contracts/src/internal/{owners,usage}.ts). */
@ApiExcludeController()
@Controller('internal/v1')
export class InternalController {
  constructor(
    private readonly database: Database,
    private readonly orders: VmOrdersService,
  ) {}

  @Get('owners/vm/:id')
  async ownerOfVm(@Param('id') id: string): Promise<Owner> {
    const [owner] = await this.database.named<{ account_id: string; project_id: string }>(
      'vm_owner',
      'select * from vm_owner($1)',
      [pathId(id)],
    );
    if (!owner) throw notFound();
    return { ...owner, parents: [] };
  }

  @Get('owners/ssh_key/:id')
  async ownerOfKey(@Param('id') id: string): Promise<Owner> {
    const [owner] = await this.database.named<{ account_id: string }>(
      'ssh_key_owner',
      'select * from ssh_key_owner($1)',
      [pathId(id)],
    );
    if (!owner) throw notFound();
    return { ...owner, project_id: null, parents: [] };
  }

  @Get('projects/:id/usage')
  async usage(@Param('id') id: string): Promise<ProjectUsage> {
    return { count: await this.orders.countIn(id) };
  }
}
