import { Body, Controller, HttpCode, Post } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { IdField, type PortInfo, type ServiceIdentity } from '@nebo/contracts';
import { CallingService } from '@nebo/service-kit';
import { idsOf } from '../ports/ports.controller.js';
import { AttachmentsService } from './attachments.service.js';

class OrderBody {
  @IdField()
  operation_id!: string;
  @IdField()
  account_id!: string;
  @IdField()
  port_id!: string;
  @IdField()
  project_id!: string;
}

/** Floating IPs that come with a machine (docs: libs/contracts/src/internal/ports.ts). */
@ApiExcludeController()
@Controller('internal/v1/floating-ips')
export class FloatingIpOrdersController {
  constructor(private readonly attachments: AttachmentsService) {}

  @Post('order')
  @HttpCode(200)
  order(@CallingService() caller: ServiceIdentity, @Body() body: OrderBody): Promise<PortInfo> {
    const { port_id, project_id } = body;
    const request = {
      ...idsOf(caller, body),
      port_id: port_id.toLowerCase(),
      project_id: project_id.toLowerCase(),
    };
    return this.attachments.order(request, caller.service);
  }
}
