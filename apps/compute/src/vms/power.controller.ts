import { Body, Controller, Param, Post } from '@nestjs/common';
import {
  type KeyIdentity,
  Operation,
  V1PowerActionResult,
  V1VMRenewalQuote,
  VMStartRequest,
} from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest, OptionalBody } from '@nebo/service-kit';
import { VmsService } from './vms.service.js';

const paths = (tail: string) => [`projects/:project_id/vms/:vm_id/${tail}`, `vms/:vm_id/${tail}`];

@Controller('v1')
export class PowerController {
  constructor(private readonly vms: VmsService) {}

  @Post(paths('start'))
  @Operation({
    id: 'vms_start_vm',
    flatId: 'vms_start_vm_by_id',
    tag: 'vms',
    summary: 'Start a machine',
    permission: 'vm:update',
    resource: 'vm',
    body: VMStartRequest,
    bodyOptional: true,
    answer: V1PowerActionResult,
  })
  start(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('vm_id') id: string,
    @Idempotent() idem: IdempotentRequest | null,
    @Body(new OptionalBody(VMStartRequest)) body: unknown,
  ): Promise<V1PowerActionResult> {
    return this.vms.power(caller, project ?? null, id, 'start', idem, body as VMStartRequest);
  }

  @Post(paths('renewal-quote'))
  @Operation({
    id: 'vms_create_renewal_quote',
    flatId: 'vms_create_renewal_quote_by_id',
    tag: 'vms',
    summary: 'Say what the next period of a machine costs; its token confirms that price at a start',
    permission: 'vm:update',
    resource: 'vm',
    answer: V1VMRenewalQuote,
  })
  quote(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('vm_id') id: string,
  ): Promise<V1VMRenewalQuote> {
    return this.vms.quote(caller, project ?? null, id);
  }

  @Post(paths('stop'))
  @Operation({
    id: 'vms_stop_vm',
    flatId: 'vms_stop_vm_by_id',
    tag: 'vms',
    summary: 'Stop a machine',
    permission: 'vm:update',
    resource: 'vm',
    answer: V1PowerActionResult,
  })
  stop(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('vm_id') id: string,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1PowerActionResult> {
    return this.vms.power(caller, project ?? null, id, 'stop', idem);
  }

  @Post(paths('restart'))
  @Operation({
    id: 'vms_restart_vm',
    flatId: 'vms_restart_vm_by_id',
    tag: 'vms',
    summary: 'Restart a machine',
    permission: 'vm:update',
    resource: 'vm',
    answer: V1PowerActionResult,
  })
  restart(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('vm_id') id: string,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1PowerActionResult> {
    return this.vms.power(caller, project ?? null, id, 'restart', idem);
  }
}
