import { Body, Controller, Delete, Get, Param, Post, Put, Query } from '@nestjs/common';
import {
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  PathParams,
  StrField,
  V1DNSRecordSet,
  V1DNSRecordSetCreate,
  V1DNSRecordSetUpdate,
} from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest, readBody, readQuery } from '@nebo/service-kit';
import { RrsetsService } from './rrsets.service.js';

const tag = 'dns';

class SetsQuery extends PageQuery {
  @StrField({ nullable: true, optional: true, description: 'Only this name' })
  name?: string | null;
  @StrField({ nullable: true, optional: true, description: 'Only this type' })
  type?: string | null;
}

const expectedRevision = 'The revision that is meant; 409 dns_rrset_changed when it is not the present one';

class DeleteQuery {
  @StrField({
    pattern: /^[0-9a-fA-F]{64}$/,
    rule: 'must be a revision: 64 hex digits',
    description: expectedRevision,
  })
  expected_revision!: string;
}

/** `/dns/zones/{zone_id}/rrsets`. */
@Controller('v1/dns/zones/:zone_id/rrsets')
export class RrsetsController {
  constructor(private readonly sets: RrsetsService) {}

  @Get()
  @PathParams('zone_id')
  @Operation({
    id: 'dns_list_rrsets',
    tag,
    summary: 'List the record sets of a zone, the oldest first',
    permission: 'dns_zone:read',
    resource: 'dns_zone',
    answer: Page(V1DNSRecordSet),
  })
  list(@Caller() caller: KeyIdentity, @Param('zone_id') zone: string, @Query() query: SetsQuery) {
    return this.sets.list(caller, zone, query, query);
  }

  @Post()
  @PathParams('zone_id')
  @Operation({
    id: 'dns_create_rrset',
    tag,
    summary: 'Create a record set; an existing one is never overwritten',
    permission: 'dns_zone:write',
    resource: 'dns_zone',
    status: 201,
    body: V1DNSRecordSetCreate,
    answer: V1DNSRecordSet,
  })
  create(
    @Caller() caller: KeyIdentity,
    @Param('zone_id') zone: string,
    @Body() body: V1DNSRecordSetCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1DNSRecordSet> {
    return this.sets.create(caller, zone, body, idem);
  }

  @Get(':rrset_id')
  @PathParams('zone_id', 'rrset_id')
  @Operation({
    id: 'dns_get_rrset',
    tag,
    summary: 'Read a record set',
    permission: 'dns_zone:read',
    resource: 'dns_zone',
    answer: V1DNSRecordSet,
  })
  get(
    @Caller() caller: KeyIdentity,
    @Param('zone_id') zone: string,
    @Param('rrset_id') id: string,
  ): Promise<V1DNSRecordSet> {
    return this.sets.get(caller, zone, id);
  }

  @Put(':rrset_id')
  @PathParams('zone_id', 'rrset_id')
  @Operation({
    id: 'dns_replace_rrset',
    tag,
    summary: 'Replace TTL and values of a record set; values that stay keep their record ids',
    permission: 'dns_zone:write',
    resource: 'dns_zone',
    body: V1DNSRecordSetUpdate,
    answer: V1DNSRecordSet,
  })
  async replace(
    @Caller() caller: KeyIdentity,
    @Param('zone_id') zone: string,
    @Param('rrset_id') id: string,
    @Body() raw: unknown,
  ): Promise<V1DNSRecordSet> {
    await this.sets.get(caller, zone, id);
    return this.sets.replace(caller, zone, id, await readBody(V1DNSRecordSetUpdate, raw));
  }

  @Delete(':rrset_id')
  @PathParams('zone_id', 'rrset_id')
  @Operation({
    id: 'dns_delete_rrset',
    tag,
    summary: 'Delete a record set',
    permission: 'dns_zone:write',
    resource: 'dns_zone',
    status: 204,
    query: [
      {
        name: 'expected_revision',
        required: true,
        description: expectedRevision,
        schema: { type: 'string', pattern: '^[0-9a-fA-F]{64}$' },
      },
    ],
  })
  async delete(
    @Caller() caller: KeyIdentity,
    @Param('zone_id') zone: string,
    @Param('rrset_id') id: string,
    @Query() raw: unknown,
  ): Promise<void> {
    // What the path names comes before what the query says (interfaces.md, 2).
    await this.sets.get(caller, zone, id);
    const { expected_revision } = await readQuery(DeleteQuery, raw);
    await this.sets.delete(caller, zone, id, expected_revision);
  }
}
