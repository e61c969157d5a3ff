import { ApiError } from '@nebo/service-kit';
import { addressText, defaultSubnets, overlap, requireSubnet, subnetOf } from './subnet.js';

const refusal = (cidr: string): string => {
  try {
    return requireSubnet(cidr).cidr;
  } catch (error) {
    return error instanceof ApiError ? `${error.status} ${error.code}` : String(error);
  }
};

describe('ranges of VPCs', () => {
  it.each(['10.16.0.0/16', '10.255.255.240/28', '172.16.0.0/16', '172.31.255.0/24', '192.168.0.0/16'])(
    '%s is one',
    (cidr) => {
      expect(requireSubnet(cidr).cidr).toBe(cidr);
    },
  );

  it.each([
    ['10.0.0.0/16', '400 invalid_subnet'],
    ['10.15.255.0/24', '400 invalid_subnet'],
    ['11.0.0.0/16', '400 invalid_subnet'],
    ['172.32.0.0/16', '400 invalid_subnet'],
    ['192.169.0.0/24', '400 invalid_subnet'],
    ['203.0.113.0/24', '400 invalid_subnet'],
    ['100.64.0.0/16', '400 invalid_subnet'],
    ['172.16.0.0/15', '400 invalid_subnet'],
    ['10.16.0.0/12', '400 invalid_subnet'],
    ['10.16.0.0/29', '400 invalid_subnet'],
    ['10.16.0.1/24', '422 validation_error'],
    ['10.16.0/24', '422 validation_error'],
    ['10.256.0.0/16', '422 validation_error'],
    ['10.16.0.0', '422 validation_error'],
    ['10.16.0.0/33', '422 validation_error'],
  ])('%s is none: %s', (cidr, expected) => {
    expect(refusal(cidr)).toBe(expected);
  });

  it('overlap is seen whichever is larger, neighbours do not overlap', () => {
    const [a, b, c] = ['10.16.0.0/16', '10.16.3.0/24', '10.17.0.0/16'].map((cidr) => subnetOf(cidr)!);
    expect([overlap(a!, b!), overlap(b!, a!), overlap(a!, a!), overlap(a!, c!)]).toEqual([
      true,
      true,
      true,
      false,
    ]);
  });

  it('the router has the first address; ranges for default VPCs are allowed ones and do not overlap', () => {
    expect(addressText(subnetOf('192.168.7.0/24')!.gateway)).toBe('192.168.7.1');
    const all = [...defaultSubnets()];
    expect(all).toHaveLength(2_048);
    all.forEach((subnet, index) => {
      expect(requireSubnet(subnet.cidr)).toEqual(subnet);
      if (index > 0) expect(subnet.network).toBe(all[index - 1]!.broadcast + 1);
    });
  });
});
