import { commonErrors } from '@nebo/contracts';
import { contractDocument } from '@nebo/service-kit';
import { networking } from './networking.module.js';

interface Described {
  operationId: string;
  tags: string[];
  responses: Record<string, unknown>;
  requestBody?: { required?: boolean };
  parameters: { name: string; in: string }[];
  'x-nebo-permission': string[];
  'x-nebo-resource': string;
}

/** Method, path, id, success, permission, resource. The contract's own words, not ours. */
const operations: [string, string, string, string, string, string][] = [
  ['get', '/vpcs', 'networking_list_vpcs', '200', 'vpc:read', 'list'],
  ['post', '/vpcs', 'networking_create_vpc', '201', 'vpc:write', 'account'],
  ['get', '/vpcs/{vpc_id}', 'networking_get_vpc', '200', 'vpc:read', 'vpc'],
  ['patch', '/vpcs/{vpc_id}', 'networking_update_vpc', '200', 'vpc:write', 'vpc'],
  ['delete', '/vpcs/{vpc_id}', 'networking_delete_vpc', '204', 'vpc:write', 'vpc'],
  ['get', '/vpcs/{vpc_id}/reserved-ips', 'networking_list_reserved_ips', '200', 'vpc:read', 'vpc'],
  ['post', '/vpcs/{vpc_id}/reserved-ips', 'networking_create_reserved_ip', '201', 'vpc:write', 'vpc'],
  [
    'delete',
    '/vpcs/{vpc_id}/reserved-ips/{ip_id}',
    'networking_delete_reserved_ip',
    '204',
    'vpc:write',
    'vpc',
  ],
  ['post', '/vpcs/{vpc_id}/nat-gateway', 'networking_enable_nat_gateway', '201', 'vpc:write', 'vpc'],
  ['delete', '/vpcs/{vpc_id}/nat-gateway', 'networking_disable_nat_gateway', '202', 'vpc:write', 'vpc'],
  ...(['attach', 'detach'] as const).map((verb): [string, string, string, string, string, string] => [
    'post',
    `/floating-ips/{fip_id}/${verb}`,
    `networking_${verb}_floating_ip`,
    '200',
    'floating_ip:write',
    'floating_ip',
  ]),
  ['get', '/floating-ips', 'networking_list_floating_ips', '200', 'floating_ip:read', 'list'],
  ['post', '/floating-ips', 'networking_create_floating_ip', '201', 'floating_ip:write', 'account'],
  ['get', '/floating-ips/{fip_id}', 'networking_get_floating_ip', '200', 'floating_ip:read', 'floating_ip'],
  [
    'patch',
    '/floating-ips/{fip_id}',
    'networking_update_floating_ip',
    '200',
    'floating_ip:write',
    'floating_ip',
  ],
  [
    'delete',
    '/floating-ips/{fip_id}',
    'networking_delete_floating_ip',
    '204',
    'floating_ip:write',
    'floating_ip',
  ],
];

describe('the contract of networking', () => {
  let paths: Record<string, Record<string, Described>>;
  let schemas: Record<string, { properties: Record<string, object>; required?: string[] }>;

  beforeAll(async () => {
    const document = await contractDocument({ title: 't', description: 'd', definitions: [networking] });
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
        tags: ['networking'],
        'x-nebo-permission': [permission],
        'x-nebo-resource': resource,
      });
    }
    const count = Object.values(paths).reduce((sum, item) => sum + Object.keys(item).length, 0);
    expect(count).toBe(operations.length);
  });

  it('records have the contract’s fields, those that clients rely on required', () => {
    expect(Object.keys(schemas['V1Vpc']!.properties).sort()).toEqual(
      [
        ...['id', 'name', 'subnet', 'cluster_id', 'is_default', 'nat_gateway', 'ovn_name', 'status'],
        'status_reason',
      ].sort(),
    );
    expect(schemas['V1VpcCreate']!.required!.sort()).toEqual(['cluster_id', 'name', 'subnet']);
    expect(schemas['V1ReservedIpCreate']!.required!.sort()).toEqual(['address', 'mac', 'name']);
    expect(Object.keys(schemas['V1NatGateway']!.properties).sort()).toEqual(
      ['enabled', 'fip_id', 'address', 'status', 'last_error'].sort(),
    );
    expect(Object.keys(schemas['V1FloatingIP']!.properties).sort()).toEqual(
      [
        ...['id', 'address', 'cluster_id', 'status', 'name', 'internal_address', 'target_kind', 'vm_id'],
        ...['vm_interface_id', 'vm_project_id', 'vpc_id', 'auto_release', 'last_error', 'created_at'],
        'monthly_price',
      ].sort(),
    );
  });

  it('bodies: an interface is needed, the address of a gateway is not, nor its body', () => {
    expect(schemas['V1FloatingIPAttach']!.required).toEqual(['vm_interface_id']);
    expect(Object.keys(schemas['V1NatGatewayEnable']!.properties)).toEqual(['fip_id']);
    expect(schemas['V1NatGatewayEnable']!.required).toBeUndefined();
    expect(paths['/vpcs/{vpc_id}/nat-gateway']!['post']!.requestBody?.required).toBe(false);
    expect(paths['/floating-ips/{fip_id}/attach']!['post']!.requestBody?.required).toBe(true);
    expect(paths['/floating-ips/{fip_id}/detach']!['post']!.requestBody).toBeUndefined();
  });

  it('lists take a region and a page; the reads of a VPC and of a floating IP can wait', () => {
    const names = (path: string) =>
      paths[path]!['get']!.parameters.filter((parameter) => parameter.in === 'query').map(({ name }) => name);
    for (const path of ['/vpcs', '/floating-ips'])
      expect(names(path).sort()).toEqual(['cluster_id', 'limit', 'offset']);
    for (const path of ['/vpcs/{vpc_id}', '/floating-ips/{fip_id}'])
      expect(names(path).sort()).toEqual(['timeout', 'wait']);
  });
});
