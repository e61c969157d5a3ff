import { Body, Controller, HttpCode, Post } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import {
  BoolField,
  dnsLimits,
  EnumField,
  IdField,
  IntField,
  type ManagedDeleted,
  type ManagedPut,
  type RecordType,
  recordTypes,
  type ServiceIdentity,
  StrField,
  StringsField,
} from '@nebo/contracts';
import { CallingService, forbidden } from '@nebo/service-kit';
import { ManagedService } from './managed.service.js';

const ownerField = { min: 3, max: 100, pattern: /^[a-z_]+:[0-9a-fA-F-]+$/ };

class PutBody {
  @IdField()
  account_id!: string;
  @StrField(ownerField)
  owner!: string;
  @StrField({ min: 1, max: 254 })
  name!: string;
  @EnumField(recordTypes)
  type!: RecordType;
  @StringsField({ minItems: 1, maxItems: dnsLimits.values })
  contents!: string[];
  @IntField({ nullable: true, min: 0, max: dnsLimits.ttl })
  ttl!: number | null;
  @BoolField({ default: false })
  override: boolean = false;
}

class DeleteBody {
  @IdField()
  account_id!: string;
  @StrField(ownerField)
  owner!: string;
  @StrField({ nullable: true, optional: true, max: 254 })
  name?: string | null;
  @EnumField(recordTypes, { nullable: true, optional: true })
  type?: RecordType | null;
}

/** Records that the platform keeps (docs: libs/contracts/src/internal/records.ts). */
@ApiExcludeController()
@Controller('internal/v1/records')
export class ManagedController {
  constructor(private readonly managed: ManagedService) {}

  @Post('put-managed')
  @HttpCode(200)
  put(@CallingService() caller: ServiceIdentity, @Body() body: PutBody): Promise<ManagedPut> {
    return this.managed.put({ ...body, account_id: accountOf(caller, body.account_id) });
  }

  @Post('delete-managed')
  @HttpCode(200)
  delete(@CallingService() caller: ServiceIdentity, @Body() body: DeleteBody): Promise<ManagedDeleted> {
    return this.managed.delete({ ...body, account_id: accountOf(caller, body.account_id) });
  }
}

/** @throws ApiError 403 for a service that acts for another account than its body names */
function accountOf(caller: ServiceIdentity, account: string): string {
  const id = account.toLowerCase();
  if (caller.account_id !== null && caller.account_id !== id) throw forbidden('the account of its body');
  return id;
}
