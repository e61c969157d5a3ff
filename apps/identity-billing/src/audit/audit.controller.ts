import { Body, Controller, Get, HttpCode, Post, Query } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import {
  AnyObjectField,
  type AuditWriteRequest,
  decide,
  IdField,
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  type ServiceIdentity,
  StrField,
  V1AuditEntry,
} from '@nebo/contracts';
import { Caller, CallingService, forbidden } from '@nebo/service-kit';
import { AuditService } from './audit.service.js';

class AuditBody implements AuditWriteRequest {
  @IdField({ optional: true })
  id?: string;
  @IdField({ nullable: true })
  account_id!: string | null;
  @StrField({ optional: true, min: 1, max: 200 })
  actor?: string;
  @StrField({ min: 1, max: 200 })
  action!: string;
  @StrField({ nullable: true, optional: true, max: 300 })
  resource?: string | null;
  @AnyObjectField({ nullable: true, optional: true })
  details?: object | null;
}

/** `GET /audit-log`. */
@Controller('v1')
export class AuditController {
  constructor(private readonly audit: AuditService) {}

  /**
   * The log names everything that was ever done in the account, so only a key that may do everything there reads it:
   * action `*` on resource `*`, no allow-list, issued by an owner or admin.
   */
  @Get('audit-log')
  @Operation({
    id: 'account_list_audit_log',
    tag: 'account',
    summary: 'What was done in the account, newest first; for keys that may do everything',
    permission: '*',
    resource: 'account',
    answer: Page(V1AuditEntry),
  })
  list(@Caller() caller: KeyIdentity, @Query() page: PageQuery) {
    const whole = decide(caller, '*', { kind: 'account', id: caller.account_id, project_id: null });
    if (!whole || (caller.role !== 'owner' && caller.role !== 'admin')) throw forbidden('*');
    return this.audit.list(caller.account_id, page);
  }
}

/** Entries of other services. */
@ApiExcludeController()
@Controller('internal/v1')
export class AuditInternalController {
  constructor(private readonly audit: AuditService) {}

  @Post('audit')
  @HttpCode(204)
  write(@CallingService() caller: ServiceIdentity, @Body() body: AuditBody) {
    return this.audit.take(caller.service, body);
  }
}
