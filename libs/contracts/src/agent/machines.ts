import type { BlobRef } from './blob-ref.js';

/** A machine as its region shall make it. */
export interface MachineSpec {
  account_id: string;
  name: string;
  hostname: string;
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
  /** `blob`: the image's bytes when an operator registered them; null for one that the agent brings itself, by `filename`. */
  image: { id: string; filename: string; blob: BlobRef | null };
  /**
   * Bytes that the disk is made of instead of the image's: those of a backup. `number` rises with every restore; a disk that
   * was made under a lower number is made anew, with the machine stopped before and as `power` says after.
   */
  restore: { number: number; blob: BlobRef } | null;
  default_user: string;
  /** OpenSSH public keys. */
  ssh_keys: string[];
  /** The user's cloud-init; null for none. */
  user_data: string | null;
  install_guest_agent: boolean;
  /** One per port of networking, in the order in which the guest sees them. */
  interfaces: { id: string; name: string; vpc_id: string; mac: string; address: string }[];
  power: 'running' | 'stopped';
  /** Rises with every restart: a machine that was started under a lower number is restarted once. */
  boot: number;
}

/** What an agent says of a machine, in `facts` of its observation. */
export interface MachineFacts {
  driver: string;
  /** False: states and timings only, no machine runs anywhere. */
  real: boolean;
  /** The `boot` of the spec under which the machine was started last. */
  boot: number;
  started_at: string | null;
  guest_agent: 'connected' | 'absent' | null;
  /** The `restore.number` that the disk was made under, 0 for the image's. */
  restored: number;
  /** The size that the machine really has: processors and memory change with its next start, the disk at once. */
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
}

/** States that an agent reports of a machine. `failed` stays until another generation asks again. */
export type MachineState = 'creating' | 'starting' | 'running' | 'stopping' | 'stopped' | 'failed' | 'gone';

/** A machine's disk at one moment, to be put into the blob store. Made once; the agent keeps nothing of it afterwards. */
export interface BackupSpec {
  account_id: string;
  vm_id: string;
}

/** What a made backup is, in `facts` of its observation. */
export interface BackupFacts {
  driver: string;
  real: boolean;
  /** A compressed qcow2 file. */
  blob: BlobRef;
  /** `frozen`: by the guest agent; `crash`: as after a power cut; `stopped`: the machine did not run. */
  consistency: 'frozen' | 'crash' | 'stopped';
}

/** States that an agent reports of a backup. `failed` and `ready` are final. */
export type BackupState = 'creating' | 'ready' | 'failed' | 'gone';

/** What a region can hold in all, reported when an agent takes it; null: nobody knows, nothing is refused for it. */
export interface RegionCapacity {
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
}

/** One VPC: a network that reaches no other one and, without a gateway, nothing outside. */
export interface VpcSpec {
  account_id: string;
  /** CIDR form; ranges of several VPCs may overlap. */
  subnet: string;
  /** First address of the subnet: router and DHCP server. */
  gateway: string;
  /** What DHCP gives; nobody else gets an address. */
  ports: { id: string; mac: string; address: string }[];
  /** Floating IPs of single ports: in to the port, and the address with which it goes out. */
  floating_ips: { id: string; address: string; port_id: string }[];
  /** The NAT gateway, a floating IP for all that has none of its own; null: no way out. */
  nat: { id: string; address: string } | null;
}

/** What an agent says of a VPC, in `facts` of its observation. */
export interface VpcFacts {
  driver: string;
  /** False: an address book, no packet goes anywhere. */
  real: boolean;
  ports: number;
  /** Ids of the floating IPs (the gateway's included) that work. */
  floating_ips: string[];
  /** Why others do not, by their id, in a sentence for the user. */
  faults: Record<string, string>;
}

/** States that an agent reports of a VPC: `error` is not final, the agent tries again. */
export type VpcState = 'active' | 'error' | 'gone';
