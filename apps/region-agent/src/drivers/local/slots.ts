import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A user id, and a /30 of addresses, for one run. */
export interface Slot {
  number: number;
  /** The unprivileged user (and group) of the run; no other run of this host has it at the same time. */
  uid: number;
  /** The host's end of the link. */
  hostAddress: string;
  /** The run's end. */
  address: string;
}

/** 100.96.0.0/12 in pieces of four addresses. */
const slots = 2 ** 18;
const firstUid = 200_000;
const base = (100 << 24) | (96 << 16);

const dotted = (value: number) => [24, 16, 8, 0].map((shift) => (value >>> shift) & 255).join('.');

/** What a slot's number stands for. */
export function slotAt(number: number): Slot {
  const net = base + number * 4;
  return { number, uid: firstUid + number, hostAddress: dotted(net + 1), address: dotted(net + 2) };
}

/** Slots of one agent, held on disk; each agent of a host begins at another place, by its tag. */
export class Slots {
  private next: number;

  constructor(
    private readonly dir: string,
    tag: string,
  ) {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    this.next = createHash('sha256').update(tag).digest().readUInt32BE(0) % slots;
  }

  /** Takes a free slot. `taken` says whether an address is in use on this host for something else. */
  acquire(taken: (address: string) => boolean): Slot {
    const held = new Set(readdirSync(this.dir));
    for (let tried = 0; tried < slots; tried++) {
      const slot = slotAt(this.next);
      this.next = (this.next + 1) % slots;
      if (held.has(String(slot.number)) || taken(slot.hostAddress)) continue;
      writeFileSync(join(this.dir, String(slot.number)), '', { flag: 'wx' });
      return slot;
    }
    throw new Error('No address of 100.96.0.0/12 is free');
  }

  release(slot: Slot): void {
    rmSync(join(this.dir, String(slot.number)), { force: true });
  }

  /** An earlier agent's slots are free once its processes have been ended. */
  releaseAll(): void {
    for (const name of readdirSync(this.dir)) rmSync(join(this.dir, name), { force: true });
  }
}
