import { Injectable } from '@nestjs/common';
import type {
  PortAddresses,
  PortAddressesRequest,
  PortClaimRequest,
  PortFloatingIpRequest,
  PortInfo,
  PortReleaseRequest,
} from '@nebo/contracts';
import { ApiError, Peers } from '@nebo/service-kit';
import type { InterfaceRow, VmRow } from './vm.rows.js';

/** Ports of machines at networking. An interface's id is its port's, so a repeated claim answers what the first did. */
@Injectable()
export class VmPorts {
  constructor(private readonly peers: Peers) {}

  /**
   * @returns the port, or why there is none and will be none
   * @throws ApiError when networking is away: ask again
   */
  async claim(vm: VmRow, of: InterfaceRow): Promise<PortInfo | string> {
    const request: PortClaimRequest = {
      operation_id: of.id,
      account_id: vm.account_id,
      kind: 'vm_interface',
      owner: `vm:${vm.id}`,
      project_id: vm.project_id,
      vpc_id: of.wanted_vpc_id,
      region_id: vm.region_id,
    };
    try {
      return await this.peers.call<PortInfo>('networking', '/internal/v1/ports/claim', {
        account: vm.account_id,
        body: request,
        operationId: of.id,
      });
    } catch (error) {
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) return error.message;
      throw error;
    }
  }

  /**
   * Orders the floating IP of an interface whose port is claimed, when it shall have one of its own. It goes with the port.
   * @returns why there is none and will be none; null when it is ordered, or none is wanted
   * @throws ApiError when networking or billing is away: ask again
   */
  async orderFloatingIp(vm: VmRow, of: InterfaceRow): Promise<string | null> {
    if (of.fip_id === null) return null;
    const request: PortFloatingIpRequest = {
      operation_id: of.fip_id,
      account_id: vm.account_id,
      port_id: of.id,
      project_id: vm.project_id,
    };
    try {
      await this.peers.call('networking', '/internal/v1/floating-ips/order', {
        account: vm.account_id,
        body: request,
        operationId: of.fip_id,
      });
      return null;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      // What is only missing now may come; that the region has no address left will not change soon.
      if (error.status < 500 || error.code === 'no_capacity') return error.message;
      throw error;
    }
  }

  /** The floating IPs of a machine's interfaces, as they are now. @throws ApiError when networking is away: ask again */
  async floatingIps(vm: VmRow): Promise<Map<string, NonNullable<PortInfo['floating_ip']>>> {
    const found = new Map<string, NonNullable<PortInfo['floating_ip']>>();
    const ids = vm.interfaces.filter(({ fip_id }) => fip_id !== null).map(({ id }) => id);
    if (ids.length === 0) return found;
    for (const { id, floating_ip } of await this.read(vm.account_id, ids))
      if (floating_ip) found.set(id, floating_ip);
    return found;
  }

  /**
   * Ports of an account as they are now; what is not there is left out. One call for each thousand.
   * @throws ApiError when networking is away
   */
  async read(account: string, ids: readonly string[], timeoutMs?: number): Promise<PortInfo[]> {
    const ports: PortInfo[] = [];
    for (let from = 0; from < ids.length; from += 1_000) {
      const body: PortAddressesRequest = { account_id: account, ids: ids.slice(from, from + 1_000) };
      const answer = await this.peers.call<PortAddresses>('networking', '/internal/v1/ports/addresses', {
        account,
        body,
        ...(timeoutMs === undefined ? {} : { timeoutMs }),
      });
      ports.push(...answer.ports);
    }
    return ports;
  }

  /** Safe to repeat, also for a port that was never claimed. @throws ApiError when networking is away: ask again */
  async release(vm: VmRow, of: InterfaceRow): Promise<void> {
    const request: PortReleaseRequest = { operation_id: of.id, account_id: vm.account_id };
    await this.peers.call('networking', '/internal/v1/ports/release', {
      account: vm.account_id,
      body: request,
      operationId: `release:${of.id}`,
    });
  }
}
