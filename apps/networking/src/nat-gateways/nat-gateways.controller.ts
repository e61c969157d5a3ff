import { Body, Controller, Delete, Param, Post } from '@nestjs/common';
import { type KeyIdentity, Operation, PathParams, V1NatGateway, V1NatGatewayEnable } from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest, OptionalBody } from '@nebo/service-kit';
import { NatGatewaysService } from './nat-gateways.service.js';

const tag = 'networking';

/** `/vpcs/{vpc_id}/nat-gateway`; it is read through its VPC. */
@Controller('v1/vpcs/:vpc_id/nat-gateway')
export class NatGatewaysController {
  constructor(private readonly gateways: NatGatewaysService) {}

  @Post()
  @PathParams('vpc_id')
  @Operation({
    id: 'networking_enable_nat_gateway',
    tag,
    summary: 'Let a private network out through one public address, brought or ordered',
    permission: 'vpc:write',
    resource: 'vpc',
    status: 201,
    body: V1NatGatewayEnable,
    bodyOptional: true,
    answer: V1NatGateway,
  })
  enable(
    @Caller() caller: KeyIdentity,
    @Param('vpc_id') vpc: string,
    @Body(new OptionalBody(V1NatGatewayEnable)) body: unknown,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1NatGateway> {
    return this.gateways.enable(caller, vpc, body as V1NatGatewayEnable, idem);
  }

  @Delete()
  @PathParams('vpc_id')
  @Operation({
    id: 'networking_disable_nat_gateway',
    tag,
    summary: 'Take the way out away; its public address is released, also one that was brought',
    permission: 'vpc:write',
    resource: 'vpc',
    status: 202,
    answer: V1NatGateway,
  })
  disable(@Caller() caller: KeyIdentity, @Param('vpc_id') vpc: string): Promise<V1NatGateway> {
    return this.gateways.disable(caller, vpc);
  }
}
