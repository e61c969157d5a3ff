import { checkAddress, sameAddress, toBits } from './addresses.js';
import { checkUrl, parseAllowList } from './policy.js';

describe('checkAddress', () => {
  // prettier-ignore
  // Each range by its first and last address, and the neighbours that are public again.
  it.each([
    ['0.0.0.0', 'this_network'], ['0.255.255.255', 'this_network'], ['1.0.0.0', null],
    ['9.255.255.255', null], ['10.0.0.0', 'private'], ['10.255.255.255', 'private'], ['11.0.0.0', null],
    ['100.63.255.255', null], ['100.64.0.0', 'shared'], ['100.127.255.255', 'shared'], ['100.128.0.0', null],
    ['126.255.255.255', null], ['127.0.0.0', 'loopback'], ['127.255.255.255', 'loopback'], ['128.0.0.0', null],
    ['169.253.255.255', null], ['169.254.0.0', 'link_local'], ['169.254.255.255', 'link_local'], ['169.255.0.0', null],
    ['172.15.255.255', null], ['172.16.0.0', 'private'], ['172.31.255.255', 'private'], ['172.32.0.0', null],
    ['191.255.255.255', null], ['192.0.0.0', 'protocol_assignments'], ['192.0.0.255', 'protocol_assignments'], ['192.0.1.0', null],
    ['192.0.2.0', 'documentation'], ['192.0.2.255', 'documentation'], ['192.0.3.0', null],
    ['192.88.99.0', '6to4_relay'], ['192.88.98.255', null], ['192.88.100.0', null],
    ['192.167.255.255', null], ['192.168.0.0', 'private'], ['192.168.255.255', 'private'], ['192.169.0.0', null],
    ['198.17.255.255', null], ['198.18.0.0', 'benchmarking'], ['198.19.255.255', 'benchmarking'], ['198.20.0.0', null],
    ['198.51.99.255', null], ['198.51.100.0', 'documentation'], ['198.51.100.255', 'documentation'], ['198.51.101.0', null],
    ['203.0.112.255', null], ['203.0.113.0', 'documentation'], ['203.0.113.255', 'documentation'], ['203.0.114.0', null],
    ['223.255.255.255', null], ['224.0.0.0', 'multicast'], ['239.255.255.255', 'multicast'], ['240.0.0.0', 'reserved'], ['255.255.255.255', 'reserved'],
    ['::', 'unspecified'], ['::1', 'loopback'], ['::2', 'ipv4_compatible'], ['::8.8.8.8', 'ipv4_compatible'], ['::ffff:8.8.8.8', 'ipv4_mapped'],
    ['::ffff:127.0.0.1', 'loopback'], ['::ffff:0:1', 'this_network'], ['::1:0:0:0', 'not_global'], ['64:ff9b::', 'nat64'], ['64:ff9b::ffff:ffff', 'nat64'],
    ['64:ff9b:1::', 'nat64'], ['64:ff9b:1:ffff:ffff:ffff:ffff:ffff', 'nat64'], ['64:ff9b:2::', 'not_global'], ['100::', 'discard'], ['100:0:0:1::', 'not_global'],
    ['1fff:ffff::', 'not_global'], ['2000::', null], ['2001::', 'teredo'], ['2001:0:ffff::', 'teredo'], ['2001:1::', 'protocol_assignments'], ['2001:1ff:ffff::', 'protocol_assignments'],
    ['2001:200::', null], ['2001:db7:ffff::', null], ['2001:db8::', 'documentation'], ['2001:db8:ffff::', 'documentation'], ['2001:db9::', null],
    ['2001:ffff::', null], ['2002::', '6to4'], ['2002:ffff::', '6to4'], ['2003::', null], ['3ffe:ffff::', null], ['3fff::', 'documentation'], ['3fff:fff::', 'documentation'], ['3fff:1000::', null],
    ['4000::', 'not_global'], ['fbff::', 'not_global'], ['fc00::', 'unique_local'], ['fdff:ffff::', 'unique_local'], ['fe00::', 'not_global'], ['fe80::', 'link_local'],
    ['febf:ffff::', 'link_local'], ['fec0::', 'site_local'], ['feff::', 'site_local'], ['ff00::', 'multicast'], ['ffff::', 'multicast'],
    ['fe80::1%eth0', 'invalid'], ['127.1', 'invalid'], ['0x7f000001', 'invalid'], ['010.0.0.1', 'invalid'], ['', 'invalid'], ['example.com', 'invalid'], ['[::1]', 'invalid'], ['1.1.1.1 ', 'invalid'],
  ])('%s → %s', (address, rule) => {
    expect(checkAddress(address)).toBe(rule === null ? null : `address:${rule}`);
  });

  it('compares addresses as numbers', () => {
    expect(sameAddress('::1', '0:0:0:0:0:0:0:1')).toBe(true);
    expect(sameAddress('::ffff:1.2.3.4', '1.2.3.4')).toBe(true);
    expect(sameAddress('1.2.3.4', '1.2.3.5')).toBe(false);
    expect(sameAddress('', '')).toBe(false);
    expect(toBits('64:ff9b::127.0.0.1')).toBe(toBits('64:ff9b:0:0:0:0:7f00:1'));
    expect(toBits('1:2:3:4:5:6:7.8.9.10')).toBe(0x1000200030004000500060708090an);
    expect(toBits('1:2:3:4:5:6:7::')).toBe(0x10002000300040005000600070000n);
    expect(toBits('::ffff:0:0')).toBe(toBits('0.0.0.0'));
    expect(toBits('0.0.0.1')).toBe((0xffffn << 32n) | 1n);
  });
});

describe('parseAllowList', () => {
  it('takes names, IPv4, IPv6 and blanks', () => {
    const list = parseAllowList(' Git.Internal:3000, 127.0.0.1:80,[::1]:443 ,,');
    expect(list.size).toBe(3);
    expect(list.has('git.internal', 3000)).toBe(true);
    expect(list.has('GIT.internal.', 3000)).toBe(true);
    expect(list.has('git.internal', 3001)).toBe(false);
    expect(list.has('x.git.internal', 3000)).toBe(false);
    expect(list.has('0:0:0:0:0:0:0:1', 443)).toBe(true);
    expect(list.has('127.0.0.1', 81)).toBe(false);
    expect(parseAllowList(undefined).size).toBe(0);
    expect(parseAllowList('').size).toBe(0);
  });

  it.each([
    'localhost',
    'a:0',
    'a:65536',
    'a:b',
    ':80',
    'http://a:80',
    'a:80/',
    '::1:80',
    '[zz]:80',
    '[1.2.3.4]:80',
    'a b:80',
    '*:80',
    '10.0.0.0/8:80',
  ])('refuses %s', (entry) => {
    expect(() => parseAllowList(`ok:1,${entry}`)).toThrow('NEBO_SAFE_NET_ALLOW');
  });
});

describe('checkUrl', () => {
  it('tells where to dial', () => {
    expect(checkUrl('https://example.com/x')).toMatchObject({
      host: 'example.com',
      port: 443,
      allowed: false,
    });
    expect(checkUrl('http://[2606:4700::1]/')).toMatchObject({ host: '2606:4700::1', port: 80 });
    expect(checkUrl('http://127.0.0.1:9/', { allow: parseAllowList('127.0.0.1:9') })).toMatchObject({
      allowed: true,
    });
  });

  it('does not let the allow list open schemes or user names', () => {
    const allow = parseAllowList('127.0.0.1:9');
    expect(() => checkUrl('ftp://127.0.0.1:9/', { allow })).toThrow('http and https');
    expect(() => checkUrl('http://u@127.0.0.1:9/', { allow })).toThrow('user name');
    expect(() => checkUrl('http://127.0.0.1:10/', { allow, ports: [10] })).toThrow('not a public address');
  });
});
