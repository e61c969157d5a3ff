import { Body, Controller, Delete, Get, Param, Patch, Post, Query } from '@nestjs/common';
import {
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  PathParams,
  StrField,
  V1DNSRecord,
  V1DNSRecordCreate,
  V1DNSRecordUpdate,
} from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest, readBody } from '@nebo/service-kit';
import { RecordsService } from './records.service.js';

const tag = 'dns';

class RecordsQuery extends PageQuery {
  @StrField({ nullable: true, optional: true, description: 'Only this name' })
  name?: string | null;
  @StrField({ nullable: true, optional: true, description: 'Only this type' })
  type?: string | null;
}

/** `/dns/zones/{zone_id}/dns_records`. */
@Controller('v1/dns/zones/:zone_id/dns_records')
export class RecordsController {
  constructor(private readonly records: RecordsService) {}

  @Get()
  @PathParams('zone_id')
  @Operation({
    id: 'dns_list_dns_records',
    tag,
    summary: 'List the records of a zone, the oldest first',
    permission: 'dns_zone:read',
    resource: 'dns_zone',
    answer: Page(V1DNSRecord),
  })
  list(@Caller() caller: KeyIdentity, @Param('zone_id') zone: string, @Query() query: RecordsQuery) {
    return this.records.list(caller, zone, query, query);
  }

  @Post()
  @PathParams('zone_id')
  @Operation({
    id: 'dns_create_dns_record',
    tag,
    summary: 'Create a record; a TTL changes that of the whole set of its name and type',
    permission: 'dns_zone:write',
    resource: 'dns_zone',
    status: 201,
    body: V1DNSRecordCreate,
    answer: V1DNSRecord,
  })
  create(
    @Caller() caller: KeyIdentity,
    @Param('zone_id') zone: string,
    @Body() body: V1DNSRecordCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1DNSRecord> {
    return this.records.create(caller, zone, body, idem);
  }

  @Get(':record_id')
  @PathParams('zone_id', 'record_id')
  @Operation({
    id: 'dns_get_dns_record',
    tag,
    summary: 'Read a record',
    permission: 'dns_zone:read',
    resource: 'dns_zone',
    answer: V1DNSRecord,
  })
  get(
    @Caller() caller: KeyIdentity,
    @Param('zone_id') zone: string,
    @Param('record_id') id: string,
  ): Promise<V1DNSRecord> {
    return this.records.get(caller, zone, id);
  }

  @Patch(':record_id')
  @PathParams('zone_id', 'record_id')
  @Operation({
    id: 'dns_update_dns_record',
    tag,
    summary: 'Change a record; its id stays',
    permission: 'dns_zone:write',
    resource: 'dns_zone',
    body: V1DNSRecordUpdate,
    answer: V1DNSRecord,
  })
  async update(
    @Caller() caller: KeyIdentity,
    @Param('zone_id') zone: string,
    @Param('record_id') id: string,
    @Body() raw: unknown,
  ): Promise<V1DNSRecord> {
    await this.records.get(caller, zone, id);
    return this.records.update(caller, zone, id, await readBody(V1DNSRecordUpdate, raw));
  }

  @Delete(':record_id')
  @PathParams('zone_id', 'record_id')
  @Operation({
    id: 'dns_delete_dns_record',
    tag,
    summary: 'Delete a record; the last one takes its set along',
    permission: 'dns_zone:write',
    resource: 'dns_zone',
    status: 204,
  })
  async delete(
    @Caller() caller: KeyIdentity,
    @Param('zone_id') zone: string,
    @Param('record_id') id: string,
  ): Promise<void> {
    await this.records.delete(caller, zone, id);
  }
}
