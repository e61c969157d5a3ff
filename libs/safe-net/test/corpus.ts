/** Hosts that stand for a private address, whichever way they are written; the port is put behind. */
// prettier-ignore
export const privateHosts: readonly string[] = [
  // 127.0.0.1 in every spelling that some parser takes
  '127.0.0.1', '127.1', '127.0.1', '127.00.00.01', '0177.0.0.1', '0177.0.0.01', '00177.0.0.1', '0x7f.0.0.1', '0x7f.1', '0X7F.0X0.0X0.0X1',
  '0x7f000001', '0x7F000001', '2130706433', '017700000001', '0x7f.0x000001', '127.0.0.0x1', '127.0x0.00.1', '127.0.0.1.', '127.1.',
  '2130706433.', '0x7f000001.', '127.255.255.254', '127.0.0.53', '127.127.127.127', '%31%32%37.0.0.1', '127%2e0%2e0%2e1',
  '１２７.０.０.１', '１２７。０。０。１', '127。0。0。1', '127．0．0．1', '127｡0｡0｡1', '①②⑦.⓪.⓪.①', '𝟏𝟐𝟕.𝟎.𝟎.𝟏', '０x７f.1',
  // the unspecified address reaches this host too
  '0.0.0.0', '0', '0x0', '00', '0.0', '0.1.2.3', '[::]', '[0:0:0:0:0:0:0:0]', '[::0]',
  // IPv6 loopback and IPv4 inside IPv6
  '[::1]', '[0:0:0:0:0:0:0:1]', '[0000:0000:0000:0000:0000:0000:0000:0001]', '[::0001]', '[::ffff:127.0.0.1]', '[::ffff:7f00:1]',
  '[::FFFF:7F00:0001]', '[0:0:0:0:0:ffff:127.0.0.1]', '[::ffff:0:127.0.0.1]', '[::127.0.0.1]', '[::7f00:1]', '[::ffff:169.254.169.254]',
  '[::ffff:a9fe:a9fe]', '[::ffff:10.0.0.1]', '[::ffff:c0a8:1]', '[::ffff:8.8.8.8]', '[64:ff9b::127.0.0.1]', '[64:ff9b::7f00:1]',
  '[64:ff9b::10.0.0.1]', '[64:ff9b::a9fe:a9fe]', '[64:ff9b:1::7f00:1]', '[64:ff9b:1:ffff::1]', '[2002:7f00:1::]', '[2002:7f00:1::1]',
  '[2002:a9fe:a9fe::]', '[2002:c0a8:101::1]', '[2001:0:4136:e378:8000:63bf:3fff:fdd2]', '[2001::1]', '[2001:10::1]', '[2001:db8::1]',
  '[2001:db8:ffff::1]', '[3fff::1]', '[100::1]', '[fc00::1]', '[fd00::1]', '[fd12:3456:789a::1]', '[fdff:ffff::1]', '[fe80::1]',
  '[fe90::1]', '[fea0::1]', '[febf::1]', '[fec0::1]', '[feff::1]', '[ff02::1]', '[ff0e::1]', '[4000::1]', '[5f00::1]', '[8000::1]', '[1::1]',
  // IPv4 ranges, with both ends
  '10.0.0.0', '10.0.0.1', '10.255.255.255', '012.0.0.1', '0xa.0.0.1', '167772161', '172.16.0.0', '172.16.0.1', '172.31.255.255',
  '2886729729', '192.168.0.0', '192.168.1.1', '192.168.255.255', '0xc0a80101', '3232235777', '192.168.257', '169.254.0.1',
  '169.254.169.254', '0xa9fea9fe', '2852039166', '0251.0376.0251.0376', '169.254.43518', '169.16689662', '100.64.0.1',
  '100.100.100.200', '100.127.255.255', '192.0.0.1', '192.0.0.170', '192.0.0.192', '192.0.2.1', '192.88.99.1', '198.18.0.1', '198.19.255.255',
  '198.51.100.1', '203.0.113.1', '224.0.0.1', '239.255.255.250', '240.0.0.1', '255.255.255.255', '0xffffffff', '4294967295',
  // names that mean something only inside
  'localhost', 'LOCALHOST', 'localhost.', 'ＬＯＣＡＬＨＯＳＴ', 'app.localhost', 'a.b.localhost.', 'localhost.localdomain', 'metadata.google.internal',
  'metadata', 'postgres', 'nats', 'kubernetes.default.svc', 'kubernetes.default.svc.cluster.local', 'db.local', 'router.lan', 'nas.home',
  'box.home.arpa', 'wiki.corp', 'wiki.intranet', 'api.internal.', 'x.private', '1.0.0.127.in-addr.arpa',
];

/** Whole URLs that are refused before anything is dialled; PORT is the canary's. */
// prettier-ignore
export const hostileUrls: readonly string[] = [
  // userinfo and what parsers take for it
  'http://example.com@127.0.0.1:PORT/', 'http://user:pass@example.com/', 'http://user@example.com/', 'http://:pass@example.com/',
  'http://127.0.0.1:PORT@example.com/', 'http://example.com:80@127.0.0.1:PORT/', 'http://example.com%40127.0.0.1:PORT/',
  'http://example.com#@127.0.0.1:PORT/'.replace('#', '%23'), 'http://a:b@c:d@127.0.0.1:PORT/', 'http://@127.0.0.1:PORT/',
  // backslash, tab, newline, spaces, NUL
  'http://example.com\\@127.0.0.1:PORT/', 'http:\\\\127.0.0.1:PORT\\', 'http://127.0.0.1:PORT\\@example.com/', 'http:/\\127.0.0.1:PORT/',
  'ht\ntp://127.0.0.1:PORT/', 'http://127.0.\t0.1:PORT/', 'http://127.0.0\n.1:PORT/', ' http://127.0.0.1:PORT/', 'http://127.0.0.1:PORT/ ',
  '\u0000http://127.0.0.1:PORT/', 'http://127.0.0.1\u0000.example.com:PORT/', 'http://example.com\r\nHost: 127.0.0.1/', 'http://exam ple.com/',
  'http://127.0.0.1:PORT/\r\nX: y',
  // odd slashes, which WHATWG forgives
  'http:127.0.0.1:PORT/', 'http:/127.0.0.1:PORT/', 'http:///127.0.0.1:PORT/', 'http:////127.0.0.1:PORT/', 'https:127.0.0.1:PORT',
  // soft hyphen, zero width characters and full stops are dropped or turned by IDNA
  'http://127.0.0.\u00ad1:PORT/', 'http://127.0.0\u200b.1:PORT/', 'http://local\u00adhost:PORT/', 'http://loc\u200dalhost:PORT/', 'http://127\u3002\u0030.0.1:PORT/',
  // schemes
  'file:///etc/passwd', 'file://127.0.0.1/etc/passwd', 'gopher://127.0.0.1:PORT/_x', 'ftp://127.0.0.1:PORT/', 'dict://127.0.0.1:PORT/x', 'data:text/plain,x',
  'javascript:alert(1)', 'ws://127.0.0.1:PORT/', 'wss://127.0.0.1:PORT/', 'blob:http://127.0.0.1:PORT/x', 'ldap://127.0.0.1:PORT/', 'jar:http://127.0.0.1:PORT/!/',
  'unix:///var/run/docker.sock', 'http+unix://%2Fvar%2Frun%2Fdocker.sock/', 'tftp://127.0.0.1/x', 'view-source:http://127.0.0.1:PORT/', 'about:blank',
  // no URLs
  '', '/', '//127.0.0.1:PORT/', '127.0.0.1:PORT', 'http://', 'http://:PORT/', 'http://[::1', 'http://[::1%25lo]:PORT/', 'http://[fe80::1%25eth0]:PORT/', 'http://256.256.256.256/',
  'http://1.2.3.4.5/', 'http://0x100000000/', 'http://127.0.0.1.1/', 'http://08.0.0.1/', 'http://a..b/', 'http://.example.com/', 'http://example.com:99999/', 'http://example.com:-1/',
  // ports
  'http://example.com:22/', 'http://example.com:25/', 'http://example.com:6379/', 'http://example.com:0/', 'https://example.com:5432/', 'http://93.184.215.14:2375/',
];

/** What a hostile resolver answers for `evil.example.com`: one private address anywhere refuses the name. */
// prettier-ignore
export const hostileAnswers: readonly (readonly string[])[] = [
  ['127.0.0.1'], ['::1'], ['::ffff:127.0.0.1'], ['10.1.2.3'], ['169.254.169.254'], ['fd00::1'], ['fe80::1'], ['fe80::1%lo'], ['0.0.0.0'], ['::'],
  ['93.184.215.14', '127.0.0.1'], ['127.0.0.1', '93.184.215.14'], ['93.184.215.14', '1.1.1.1', '8.8.8.8', '9.9.9.9', '10.0.0.1'], ['2606:4700::1111', '::1'],
  ['93.184.215.14', '::1'], ['2606:4700::1111', '::ffff:10.0.0.1'], ['64:ff9b::7f00:1'], ['2002:7f00:1::'], ['192.168.0.1', '192.168.0.2'], ['not an address'],
  ['127.1'], ['2130706433'], [''], ['localhost'], ['100.64.0.9'], ['ff02::1'],
];

/** Legal URLs with what the resolver says (literals need nothing) and the address that must be dialled. */
// prettier-ignore
export const legalUrls: readonly (readonly [url: string, answers: readonly string[], dialled: string])[] = [
  ['http://example.com/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://example.com', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://EXAMPLE.com/Path', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://example.com./', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://example.com:80/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://example.com:443/', ['93.184.215.14'], '93.184.215.14 443'],
  ['http://example.com/?q=a%20b&c=http://127.0.0.1/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://example.com/@127.0.0.1/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://example.com/#127.0.0.1', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://127.0.0.1.example.com/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://localhost.example.com/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://internal.example.com/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://notlocalhost.com/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://10.example.com/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://a-b.c-d.example/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://xn--e1afmkfd.xn--p1ai/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://пример.рф/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://bücher.example/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://_acme.example.com/', ['93.184.215.14'], '93.184.215.14 80'],
  ['http://1.1.1.1/', [], '1.1.1.1 80'],
  ['http://8.8.8.8:80/dns', [], '8.8.8.8 80'],
  ['http://9.255.255.255/', [], '9.255.255.255 80'],
  ['http://11.0.0.0/', [], '11.0.0.0 80'],
  ['http://100.63.255.255/', [], '100.63.255.255 80'],
  ['http://100.128.0.0/', [], '100.128.0.0 80'],
  ['http://126.255.255.255/', [], '126.255.255.255 80'],
  ['http://128.0.0.1/', [], '128.0.0.1 80'],
  ['http://169.253.255.255/', [], '169.253.255.255 80'],
  ['http://169.255.0.0/', [], '169.255.0.0 80'],
  ['http://172.15.255.255/', [], '172.15.255.255 80'],
  ['http://172.32.0.0/', [], '172.32.0.0 80'],
  ['http://192.167.255.255/', [], '192.167.255.255 80'],
  ['http://192.169.0.0/', [], '192.169.0.0 80'],
  ['http://198.17.255.255/', [], '198.17.255.255 80'],
  ['http://198.20.0.0/', [], '198.20.0.0 80'],
  ['http://223.255.255.255/', [], '223.255.255.255 80'],
  ['http://[2606:4700:4700::1111]/', [], '2606:4700:4700::1111 80'],
  ['http://[2a00:1450:4001:800::200e]/', [], '2a00:1450:4001:800::200e 80'],
  ['http://[2001:200::1]/', [], '2001:200::1 80'],
  ['http://[2001:4860:4860::8888]/', [], '2001:4860:4860::8888 80'],
  ['http://[2003::1]/', [], '2003::1 80'],
  ['http://six.example.com/', ['2606:4700:4700::1111'], '2606:4700:4700::1111 80'],
  ['http://both.example.com/', ['2606:4700:4700::1111', '1.1.1.1'], '2606:4700:4700::1111 80'],
  ['http://many.example.com/', ['1.1.1.1', '8.8.8.8', '9.9.9.9', '208.67.222.222', '64.6.64.6'], '1.1.1.1 80'],
];
