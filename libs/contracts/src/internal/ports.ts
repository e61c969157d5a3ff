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
  /** Of what it is for, where that lies in a project; the first one named stays. */
  project_id?: string | null;
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
  /** Changes when an address is reserved for its MAC; the guest has it from its next lease on. */
  address: string;
  /** Length of the subnet's prefix in bits. */
  prefix: number;
  /** First address of the subnet: router and DHCP server. */
  gateway: string;
  mac: string;
  /** The floating IP that is attached to it or on its way. */
  floating_ip: { id: string; address: string; status: string } | null;
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

/**
 * `POST /internal/v1/floating-ips/order`: a floating IP for a port that is claimed, ordered, paid like any other and attached
 * in one step. `operation_id` becomes its id. It is released with its port unless its owner detached it before. Answers the
 * port (`PortInfo`), its `floating_ip` on its way; a repeat orders nothing more. 402 `insufficient_balance`, 404 for a port that
 * was never claimed, 409 `already_released` (the port, or this address after it was ordered), `interface_has_floating_ip`,
 * 503 `billing_unavailable`, 503 `no_capacity` when the region has none left.
 */
export interface PortFloatingIpRequest {
  operation_id: string;
  account_id: string;
  port_id: string;
  project_id: string;
}
