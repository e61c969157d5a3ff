import { commonErrors } from '@nebo/contracts';
import { contractDocument } from '@nebo/service-kit';
import { dns } from './dns.module.js';

interface Described {
  operationId: string;
  tags: string[];
  responses: Record<string, unknown>;
  requestBody?: { required?: boolean };
  parameters: { name: string; in: string; required?: boolean }[];
  'x-nebo-permission': string[];
  'x-nebo-resource': string;
}

const zone = '/dns/zones/{zone_id}';
/** Method, path, id, success, permission, resource. The contract's own words, not ours. */
const operations: [string, string, string, string, string, string][] = [
  ['get', '/dns/zones', 'dns_list_zones', '200', 'dns_zone:read', 'list'],
  ['post', '/dns/zones', 'dns_create_zone', '201', 'dns_zone:write', 'account'],
  ['get', zone, 'dns_get_zone', '200', 'dns_zone:read', 'dns_zone'],
  ['patch', zone, 'dns_update_zone', '200', 'dns_zone:write', 'dns_zone'],
  ['delete', zone, 'dns_delete_zone', '204', 'dns_zone:write', 'dns_zone'],
  ['post', `${zone}/verify`, 'dns_verify_zone', '200', 'dns_zone:write', 'dns_zone'],
  ['get', `${zone}/dns_records`, 'dns_list_dns_records', '200', 'dns_zone:read', 'dns_zone'],
  ['post', `${zone}/dns_records`, 'dns_create_dns_record', '201', 'dns_zone:write', 'dns_zone'],
  ['get', `${zone}/dns_records/{record_id}`, 'dns_get_dns_record', '200', 'dns_zone:read', 'dns_zone'],
  ['patch', `${zone}/dns_records/{record_id}`, 'dns_update_dns_record', '200', 'dns_zone:write', 'dns_zone'],
  ['delete', `${zone}/dns_records/{record_id}`, 'dns_delete_dns_record', '204', 'dns_zone:write', 'dns_zone'],
  ['get', `${zone}/rrsets`, 'dns_list_rrsets', '200', 'dns_zone:read', 'dns_zone'],
  ['post', `${zone}/rrsets`, 'dns_create_rrset', '201', 'dns_zone:write', 'dns_zone'],
  ['get', `${zone}/rrsets/{rrset_id}`, 'dns_get_rrset', '200', 'dns_zone:read', 'dns_zone'],
  ['put', `${zone}/rrsets/{rrset_id}`, 'dns_replace_rrset', '200', 'dns_zone:write', 'dns_zone'],
  ['delete', `${zone}/rrsets/{rrset_id}`, 'dns_delete_rrset', '204', 'dns_zone:write', 'dns_zone'],
];

describe('the contract of dns', () => {
  let paths: Record<string, Record<string, Described>>;
  let schemas: Record<string, { properties: Record<string, object>; required?: string[] }>;

  beforeAll(async () => {
    const document = await contractDocument({ title: 't', description: 'd', definitions: [dns] });
    paths = document['paths'] as unknown as typeof paths;
    schemas = (document['components'] as { schemas: typeof schemas }).schemas;
  });

  it('has each operation with the id, code and permission of the contract, and nothing else', () => {
    for (const [method, path, id, status, permission, resource] of operations) {
      const found = paths[path]?.[method];
      expect([path, found?.operationId]).toEqual([path, id]);
      expect(Object.keys(found!.responses).sort()).toEqual(
        [status, '422', ...Object.keys(commonErrors)].sort(),
      );
      expect(found).toMatchObject({
        tags: ['dns'],
        'x-nebo-permission': [permission],
        'x-nebo-resource': resource,
      });
    }
    const count = Object.values(paths).reduce((sum, item) => sum + Object.keys(item).length, 0);
    expect(count).toBe(operations.length);
  });

  it('records have the contract’s fields, those that clients rely on required', () => {
    const fields = (name: string) => Object.keys(schemas[name]!.properties).sort();
    const required = (name: string) => [...(schemas[name]!.required ?? [])].sort();
    expect(fields('V1Zone')).toEqual(
      [
        ...['id', 'name', 'status', 'created_at', 'updated_at', 'default_ttl', 'dnssec_enabled'],
        ...['nameservers', 'status_reason'],
      ].sort(),
    );
    expect(required('V1Zone')).toEqual(['created_at', 'id', 'name', 'nameservers', 'status', 'updated_at']);
    expect(schemas['V1Zone']!.properties['created_at']).toMatchObject({ format: 'date-time' });
    expect(required('V1ZoneCreate')).toEqual(['name']);
    expect(fields('V1ZoneUpdate')).toEqual(['default_ttl', 'dnssec_enabled']);
    expect(fields('V1DNSRecord')).toEqual(['content', 'id', 'managed', 'name', 'ttl', 'type', 'zone_id']);
    expect(required('V1DNSRecord')).toEqual(['content', 'id', 'name', 'type', 'zone_id']);
    expect(required('V1DNSRecordCreate')).toEqual(['content', 'name', 'type']);
    expect(required('V1DNSRecordUpdate')).toEqual([]);
    const set = ['id', 'managed', 'name', 'records', 'revision', 'ttl', 'type', 'zone_id'];
    expect([fields('V1DNSRecordSet'), required('V1DNSRecordSet')]).toEqual([set, set]);
    expect(required('V1DNSRecordSetUpdate')).toEqual(['expected_revision', 'records']);
  });

  it('lists take their filters and a page; the deletion of a set its revision', () => {
    const names = (method: string, path: string) =>
      paths[path]![method]!.parameters.filter((parameter) => parameter.in === 'query')
        .map(({ name }) => name)
        .sort();
    expect(names('get', '/dns/zones')).toEqual(['limit', 'offset', 'search', 'status_filter']);
    for (const list of ['dns_records', 'rrsets'])
      expect(names('get', `${zone}/${list}`)).toEqual(['limit', 'name', 'offset', 'type']);
    expect(paths[`${zone}/rrsets/{rrset_id}`]!['delete']!.parameters).toContainEqual(
      expect.objectContaining({ name: 'expected_revision', in: 'query', required: true }),
    );
  });
});
