/** Numbers of the protocol (RFC 1035, 2136, 6891) that the server knows by name. */

export const types = {
  A: 1,
  NS: 2,
  CNAME: 5,
  SOA: 6,
  MX: 15,
  TXT: 16,
  AAAA: 28,
  SRV: 33,
  OPT: 41,
  DS: 43,
  IXFR: 251,
  AXFR: 252,
  ANY: 255,
  CAA: 257,
} as const;

export const rcodes = {
  NOERROR: 0,
  FORMERR: 1,
  SERVFAIL: 2,
  NXDOMAIN: 3,
  NOTIMP: 4,
  REFUSED: 5,
  BADVERS: 16,
} as const;

/** Names of response codes, for figures. */
export const rcodeNames: Readonly<Record<number, string>> = Object.fromEntries(
  Object.entries(rcodes).map(([name, code]) => [code, name]),
);

export const classIn = 1;

/** Bits of the header's second 16-bit word. */
export const flags = {
  response: 0x8000,
  opcode: 0x7800,
  authoritative: 0x0400,
  truncated: 0x0200,
  recursion: 0x0100,
} as const;
