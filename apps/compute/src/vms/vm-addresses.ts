import { Injectable } from '@nestjs/common';
import type { PortInfo, V1VM } from '@nebo/contracts';
import { VmPorts } from './vm-ports.js';

/** Reading must not wait for networking as long as work may, milliseconds. */
const timeoutMs = 1_000;

/**
 * Addresses of machines as they are now: networking changes them when an address is reserved for a MAC or a floating IP is
 * attached or taken away. While it is away machines are shown with what they had when they were made.
 */
@Injectable()
export class VmAddresses {
  constructor(private readonly ports: VmPorts) {}

  /** One call for a page, none when none of its machines has a port. */
  async overlay(account: string, records: readonly V1VM[]): Promise<V1VM[]> {
    const ids = records.flatMap(({ interfaces }) => interfaces.map(({ id }) => id));
    if (ids.length === 0) return [...records];
    let ports: PortInfo[];
    try {
      ports = await this.ports.read(account, ids, timeoutMs);
    } catch {
      return [...records];
    }
    const byId = new Map(ports.map((port) => [port.id, port]));
    return records.map((record) => withPorts(record, byId));
  }

  /** The same for one machine. */
  async of(account: string, record: V1VM): Promise<V1VM> {
    return (await this.overlay(account, [record]))[0]!;
  }
}

function withPorts(record: V1VM, ports: ReadonlyMap<string, PortInfo>): V1VM {
  const interfaces = record.interfaces.map((shown) => {
    const port = ports.get(shown.id);
    return port ? { ...shown, mac: port.mac, ipv4_addresses: [port.address] } : shown;
  });
  const known = interfaces.flatMap(({ id }) => ports.get(id) ?? []);
  return {
    ...record,
    interfaces,
    ipv4_addresses: interfaces.flatMap(({ ipv4_addresses }) => ipv4_addresses),
    floating_ips: known.flatMap(({ floating_ip }) => (floating_ip ? [floating_ip] : [])),
  };
}
