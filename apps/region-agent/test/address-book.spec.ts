import { type PortSpec } from '@nebo/contracts';
import { pastProxy, portFault, rangeOf } from '../src/drivers/address-book.js';

const port: PortSpec = {
  vpc_id: '0a0a0a0a-0000-4000-8000-000000000001',
  port_id: '0a0a0a0a-0000-4000-8000-000000000002',
  mac: '02:00:00:00:00:05',
  address: '10.77.3.5',
  prefix: 24,
  gateway: '10.77.3.1',
};

describe('ports of replicas, as the control plane tells of them', () => {
  it('a port of a VPC is taken', () => {
    expect(portFault(port)).toBeNull();
    expect(portFault({ ...port, address: '172.16.255.254', prefix: 16, gateway: '172.16.0.1' })).toBeNull();
  });

  it.each<[string, Partial<PortSpec>]>([
    ['a range of the host’s own links', { address: '100.96.0.5', gateway: '100.96.0.1' }],
    ['a public range', { address: '192.0.2.5', gateway: '192.0.2.1' }],
    ['loopback', { address: '127.0.0.5', gateway: '127.0.0.1' }],
    ['a prefix that no VPC has', { prefix: 8 }],
    ['a prefix that is none', { prefix: 24.5 }],
    ['the gateway’s own address', { address: '10.77.3.1' }],
    ['a gateway outside', { gateway: '10.78.3.1' }],
    ['a MAC that is none', { mac: '02:00:00:00:00:05; reboot' }],
    ['an address that is none', { address: '10.77.3.5 accept' }],
    ['an id that is none', { port_id: '../x' }],
  ])('%s is refused', (_what, more) => {
    expect(portFault({ ...port, ...more })).toEqual(expect.any(String));
  });

  it('the range of an address, and what goes past the proxy: ranges, and so many single addresses', () => {
    expect(rangeOf('10.77.255.5', 20)).toBe('10.77.240.0/20');
    expect(rangeOf('192.168.0.30', 28)).toBe('192.168.0.16/28');
    const small = pastProxy({ ...port, address: '192.168.0.20', prefix: 28 });
    expect(small.slice(0, 3)).toEqual(['192.168.0.16/28', '192.168.0.17-192.168.0.30', '192.168.0.17']);
    expect([small.length, small.at(-1)]).toEqual([16, '192.168.0.30']);
    const large = pastProxy({ ...port, prefix: 16 });
    expect([large.length, large[2], large.at(-1)]).toEqual([514, '10.77.0.1', '10.77.2.0']);
  });
});
