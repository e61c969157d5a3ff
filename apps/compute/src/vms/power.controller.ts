import { Body, Controller, Inject, Param, Post } from '@nestjs/common';
import {
  type KeyIdentity,
  Operation,
  V1PowerActionResult,
  V1VMRenewalQuote,
  VMStartRequest,
} from '@nebo/contracts';
import {
  Caller,
  canonical,
  Idempotent,
  type IdempotentRequest,
  idempotentRequest,
  OptionalBody,
  pathId,
  RUNTIME,
  type Runtime,
} from '@nebo/service-kit';
import { VmsService } from './vms.service.js';

const paths = (tail: string) => [`projects/:project_id/vms/:vm_id/${tail}`, `vms/:vm_id/${tail}`];

@Controller('v1')
export class PowerController {
  constructor(
    private readonly vms: VmsService,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'masterKey'>,
  ) {}

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
    const start = body as VMStartRequest;
    return this.vms.power(caller, project ?? null, id, 'start', idem ?? this.named(caller, id, start), start);
  }

  /** The key in a start's body counts as the header does, by both paths as one. @throws ApiError 400, 404 */
  private named(caller: KeyIdentity, id: string, body: VMStartRequest): IdempotentRequest | null {
    return idempotentRequest(
      caller,
      'POST',
      `/v1/vms/${pathId(id)}/start`,
      body.idempotency_key || undefined,
      canonical(body),
      this.runtime.masterKey,
    );
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
