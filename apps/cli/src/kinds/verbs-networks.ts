import type { VerbGroup, WaitSpec } from './verbs.js';

const vpc: WaitSpec = {
  read: '/vpcs/{vpc_id}',
  field: 'status',
  good: ['active'],
  bad: ['error'],
  reason: 'status_reason',
};
const fip: WaitSpec = {
  read: '/floating-ips/{fip_id}',
  field: 'status',
  good: ['attached'],
  bad: ['error'],
  reason: 'last_error',
};
const nat: WaitSpec = {
  read: '/vpcs/{vpc_id}',
  field: 'nat_gateway.status',
  good: ['attached'],
  bad: ['error'],
  reason: 'nat_gateway.last_error',
};
const gone = (wait: WaitSpec): WaitSpec => ({ ...wait, good: [], bad: [], gone: true });

/** Private networks and addresses. */
export const networkVerbs: readonly VerbGroup[] = [
  {
    name: 'vpc',
    summary: 'private networks',
    example: 'nebo vpc create inner 10.20.0.0/24 --region local',
    verbs: [
      {
        usage: 'list',
        alias: 'ls',
        summary: 'all private networks',
        example: 'nebo vpc list',
        call: 'GET /vpcs',
        rows: 'VPC',
      },
      {
        usage: 'show VPC',
        alias: 'get',
        summary: 'one private network',
        example: 'nebo vpc show inner',
        call: 'GET /vpcs/{vpc_id}',
      },
      {
        usage: 'create NAME=name SUBNET=subnet',
        summary: 'a new private network',
        example: 'nebo vpc create inner 10.20.0.0/24 --region local',
        call: 'POST /vpcs',
        wait: { ...vpc, made: 'vpc_id' },
      },
      {
        usage: 'rename VPC NAME=name',
        summary: 'another name',
        example: 'nebo vpc rename inner core',
        call: 'PATCH /vpcs/{vpc_id}',
      },
      {
        usage: 'delete VPC',
        alias: 'rm',
        summary: 'delete a private network that nothing uses',
        example: 'nebo vpc delete inner',
        call: 'DELETE /vpcs/{vpc_id}',
        ask: 'VPC',
        wait: gone(vpc),
      },
    ],
  },
  {
    name: 'nat',
    summary: 'the NAT gateway of a private network',
    example: 'nebo nat enable inner',
    verbs: [
      {
        usage: 'enable VPC',
        summary: 'a way out for the whole network, by a floating IP',
        example: 'nebo nat enable inner --ip 203.0.113.7',
        call: 'POST /vpcs/{vpc_id}/nat-gateway',
        wait: nat,
        notes: 'A floating IP that is given to it is released with it.',
      },
      {
        usage: 'disable VPC',
        summary: 'take the way out away; its floating IP is released',
        example: 'nebo nat disable inner',
        call: 'DELETE /vpcs/{vpc_id}/nat-gateway',
        ask: 'VPC',
        wait: { ...nat, good: [''] },
      },
    ],
  },
  {
    name: 'reserved-ip',
    summary: 'addresses of a private network that are kept for a MAC',
    example: 'nebo reserved-ip list inner',
    verbs: [
      {
        usage: 'list VPC',
        alias: 'ls',
        summary: 'reserved addresses',
        example: 'nebo reserved-ip list inner',
        call: 'GET /vpcs/{vpc_id}/reserved-ips',
        rows: 'ADDRESS',
      },
      {
        usage: 'create VPC NAME=name IP_ADDRESS=address MAC=mac',
        summary: 'reserve an address',
        example: 'nebo reserved-ip create inner db 10.20.0.9 02:00:00:00:00:09',
        call: 'POST /vpcs/{vpc_id}/reserved-ips',
      },
      {
        usage: 'delete VPC ADDRESS',
        alias: 'rm',
        summary: 'give an address back',
        example: 'nebo reserved-ip delete inner db',
        call: 'DELETE /vpcs/{vpc_id}/reserved-ips/{ip_id}',
        ask: 'ADDRESS',
      },
    ],
  },
  {
    name: 'ip',
    summary: 'floating IPs',
    example: 'nebo ip order --region local',
    verbs: [
      {
        usage: 'list',
        alias: 'ls',
        summary: 'all floating IPs',
        example: 'nebo ip list',
        call: 'GET /floating-ips',
        rows: 'IP',
      },
      {
        usage: 'show IP',
        alias: 'get',
        summary: 'one floating IP',
        example: 'nebo ip show 203.0.113.7',
        call: 'GET /floating-ips/{fip_id}',
      },
      {
        usage: 'order',
        alias: 'create',
        summary: 'order a floating IP; it is charged until it is released',
        example: 'nebo ip order --region local --name web',
        call: 'POST /floating-ips',
      },
      {
        usage: 'label IP NAME=name',
        summary: 'give it a name',
        example: 'nebo ip label 203.0.113.7 web',
        call: 'PATCH /floating-ips/{fip_id}',
      },
      {
        usage: 'attach IP INTERFACE=vm_interface_id',
        summary: 'lead it to an interface of a machine (nebo vm show)',
        example: 'nebo ip attach 203.0.113.7 INTERFACE-ID',
        call: 'POST /floating-ips/{fip_id}/attach',
        wait: fip,
      },
      {
        usage: 'detach IP',
        summary: 'take it from its machine; it stays ordered',
        example: 'nebo ip detach 203.0.113.7',
        call: 'POST /floating-ips/{fip_id}/detach',
        wait: { ...fip, good: ['available'] },
      },
      {
        usage: 'release IP',
        alias: 'delete',
        summary: 'give it back: somebody else may get the address',
        example: 'nebo ip release 203.0.113.7',
        call: 'DELETE /floating-ips/{fip_id}',
        ask: 'IP',
        wait: gone(fip),
      },
    ],
  },
];
