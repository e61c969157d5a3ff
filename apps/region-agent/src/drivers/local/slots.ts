import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
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

/** What slots have their addresses from. */
export const slotRange = '100.96.0.0/12';
/** It in pieces of four addresses. */
const slots = 2 ** 18;
const firstUid = 200_000;
const base = (100 << 24) | (96 << 16);

const dotted = (value: number) => [24, 16, 8, 0].map((shift) => (value >>> shift) & 255).join('.');

/** What a slot's number stands for. */
export function slotAt(number: number): Slot {
  const net = base + number * 4;
  return { number, uid: firstUid + number, hostAddress: dotted(net + 1), address: dotted(net + 2) };
}

/**
 * Slots of one agent, held on disk; each agent of a host begins at another place, by its tag, and the next agent of the same home goes on
 * where the one before it was: an edge that has not heard of a restart must not find another app at an address that it knows.
 */
export class Slots {
  private next: number;
  private readonly file: string;

  constructor(
    private readonly dir: string,
    tag: string,
  ) {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    this.file = `${dir}.next`;
    this.next = this.noted() ?? createHash('sha256').update(tag).digest().readUInt32BE(0) % slots;
  }

  /** Takes a free slot. `taken` says whether an address is in use on this host for something else. */
  acquire(taken: (address: string) => boolean): Slot {
    const held = new Set(readdirSync(this.dir));
    for (let tried = 0; tried < slots; tried++) {
      const slot = slotAt(this.next);
      this.next = (this.next + 1) % slots;
      if (held.has(String(slot.number)) || taken(slot.hostAddress)) continue;
      // Before it is taken: killed in between, one is left out.
      this.note();
      writeFileSync(join(this.dir, String(slot.number)), '', { flag: 'wx' });
      return slot;
    }
    throw new Error(`No address of ${slotRange} is free`);
  }

  release(slot: Slot): void {
    rmSync(join(this.dir, String(slot.number)), { force: true });
  }

  /** An earlier agent's slots are free once its processes have been ended. */
  releaseAll(): void {
    for (const name of readdirSync(this.dir)) rmSync(join(this.dir, name), { force: true });
  }

  private noted(): number | null {
    try {
      const text = readFileSync(this.file, 'utf8');
      return /^\d{1,6}$/.test(text) ? Number(text) % slots : null;
    } catch {
      return null;
    }
  }

  private note(): void {
    writeFileSync(`${this.file}.new`, String(this.next), { mode: 0o600 });
    renameSync(`${this.file}.new`, this.file);
  }
}
