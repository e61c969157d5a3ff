import { Body, Controller, HttpCode, Post } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import {
  EnumField,
  IdField,
  type PortAddresses,
  type PortInfo,
  type PortKind,
  portKinds,
  StrField,
  StringsField,
} from '@nebo/contracts';
import { CallingService, forbidden, idOrNull, validationError } from '@nebo/service-kit';
import type { ServiceIdentity } from '@nebo/contracts';
import { PortsService } from './ports.service.js';

class ClaimBody {
  @IdField()
  operation_id!: string;
  @IdField()
  account_id!: string;
  @EnumField(portKinds)
  kind!: PortKind;
  @StrField({ min: 3, max: 100, pattern: /^[a-z_]+:[0-9a-fA-F-]+$/ })
  owner!: string;
  @IdField({ nullable: true, optional: true })
  project_id?: string | null;
  @IdField({ nullable: true })
  vpc_id!: string | null;
  @IdField({ nullable: true, optional: true })
  region_id?: string | null;
  @StrField({
    nullable: true,
    optional: true,
    pattern: /^(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}$/,
  })
  address?: string | null;
  @StrField({
    nullable: true,
    optional: true,
    pattern: /^[0-9a-fA-F][02468aceACE]([:-][0-9a-fA-F]{2}){5}$/,
  })
  mac?: string | null;
}

class ReleaseBody {
  @IdField()
  operation_id!: string;
  @IdField()
  account_id!: string;
}

class AddressesBody {
  @IdField()
  account_id!: string;
  @StringsField({ maxItems: 1_000 })
  ids!: string[];
}

/** Internal operations on ports (docs: libs/contracts/src/internal/ports.ts). */
@ApiExcludeController()
@Controller('internal/v1/ports')
export class PortsController {
  constructor(private readonly ports: PortsService) {}

  @Post('claim')
  @HttpCode(200)
  claim(@CallingService() caller: ServiceIdentity, @Body() body: ClaimBody): Promise<PortInfo> {
    return this.ports.claim({ ...body, ...idsOf(caller, body) });
  }

  @Post('release')
  @HttpCode(200)
  async release(@CallingService() caller: ServiceIdentity, @Body() body: ReleaseBody): Promise<object> {
    await this.ports.release(idsOf(caller, body), caller.service);
    return {};
  }

  @Post('addresses')
  @HttpCode(200)
  async addresses(
    @CallingService() caller: ServiceIdentity,
    @Body() body: AddressesBody,
  ): Promise<PortAddresses> {
    const ids = body.ids.map((text) => {
      const id = idOrNull(text);
      if (id === null)
        throw validationError([{ loc: ['body', 'ids'], msg: 'must be a list of ids', type: 'uuid' }]);
      return id;
    });
    return { ports: await this.ports.addresses({ account_id: accountOf(caller, body.account_id), ids }) };
  }
}

/** @throws ApiError 403 for a service that acts for another account than its body names */
function accountOf(caller: ServiceIdentity, account: string): string {
  const id = account.toLowerCase();
  if (caller.account_id !== null && caller.account_id !== id) throw forbidden('the account of its body');
  return id;
}

export const idsOf = (caller: ServiceIdentity, body: ReleaseBody) => ({
  operation_id: body.operation_id.toLowerCase(),
  account_id: accountOf(caller, body.account_id),
});
