/**
 * Ports of networking: an address and a MAC in a VPC, for whatever sits there. `POST /internal/v1/ports/<name>`. The id of
 * a port is the `operation_id` of its claim, which the caller picks and keeps before it calls: a repeated claim answers
 * what the first answered, a claim that arrives after its release makes nothing.
 */

/** What may sit on a port. */
export const portKinds = ['vm_interface', 'replica', 'reserved_ip', 'nat_gateway'] as const;
export type PortKind = (typeof portKinds)[number];

/**
 * `claim`: 404 for a VPC that is absent or another account's, 400 `vpc_region_mismatch` and `address_outside_subnet`, 409
 * `address_in_use`, `mac_in_use`, `subnet_full`, `already_released`, `operation_reused` (same id, another content).
 */
export interface PortClaimRequest {
  operation_id: string;
  account_id: string;
  kind: PortKind;
  /** What it is for, `kind:id`. */
  owner: string;
  /** Null: the account's default VPC of the region, made on first use. */
  vpc_id: string | null;
  /** Needed without `vpc_id`; with it, the VPC must lie there. */
  region_id?: string | null;
  /** Absent: the lowest free one. */
  address?: string | null;
  /** Absent: one of ours. */
  mac?: string | null;
}

/** A claimed port. */
export interface PortInfo {
  id: string;
  kind: PortKind;
  owner: string;
  vpc_id: string;
  region_id: string;
  address: string;
  /** Length of the subnet's prefix in bits. */
  prefix: number;
  /** First address of the subnet: router and DHCP server. */
  gateway: string;
  mac: string;
}

/** `release`: gives address and MAC back. Safe to repeat, also for a claim that never arrived. */
export interface PortReleaseRequest {
  operation_id: string;
  account_id: string;
}

/** `addresses`: the ports of an account by their ids, at most 1,000; what is not there is left out. */
export interface PortAddressesRequest {
  account_id: string;
  ids: string[];
}

/** Answer of `addresses`. */
export interface PortAddresses {
  ports: PortInfo[];
}
