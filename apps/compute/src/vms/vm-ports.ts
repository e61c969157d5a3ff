import { Injectable } from '@nestjs/common';
import type { PortClaimRequest, PortInfo, PortReleaseRequest } from '@nebo/contracts';
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
