import { type MachineSpec } from '@nebo/contracts';
import { type PortTap, type PortTaps } from '../../types.js';
import { tool } from '../exec.js';

/** A machine's doors into its VPCs. */
export interface Doors {
  /** Where QEMU starts: the namespace of the first interface; null without one. */
  namespace: string | null;
  /** Taps in the order of the interfaces. */
  devices: string[];
  /**
   * Brings the taps of other VPCs to where QEMU opens them: a process sees those of one namespace only. An open tap goes on
   * working wherever its device is put.
   */
  gather(): Promise<void>;
  /** Puts them back on their bridges. */
  scatter(): Promise<void>;
}

/** @throws Error when a VPC is not there, or networks are not real here */
export async function openDoors(
  taps: PortTaps | null,
  interfaces: MachineSpec['interfaces'],
  signal: AbortSignal,
): Promise<Doors> {
  if (interfaces.length > 0 && taps === null) throw new Error('machines are real here and networks are not');
  const doors: PortTap[] = [];
  for (const { vpc_id, id } of interfaces) doors.push(await taps!.tap(vpc_id, id, signal));
  const namespace = doors[0]?.namespace ?? null;
  const strangers = interfaces
    .map(({ vpc_id, id }, index) => ({ vpc_id, id, door: doors[index]! }))
    .filter(({ door }) => door.namespace !== namespace);
  const away = new Set<PortTap>();
  return {
    namespace,
    devices: doors.map(({ device }) => device),
    gather: async () => {
      for (const { door } of strangers) {
        // An agent that was killed in between left it here; its own namespace has another one by now.
        await tool(['ip', '-n', namespace!, 'link', 'del', door.device]).catch(() => undefined);
        away.add(door);
        await tool(['ip', '-n', door.namespace, 'link', 'set', door.device, 'netns', namespace!]);
      }
    },
    scatter: async () => {
      const back = strangers.filter(({ door }) => away.delete(door));
      // All of them first: what is broken off below must leave none in a network that it does not belong to.
      for (const { door } of back)
        await tool(['ip', '-n', namespace!, 'link', 'set', door.device, 'netns', door.namespace]);
      // Who made it knows what it needs on its bridge.
      for (const { vpc_id, id } of back) await taps!.tap(vpc_id, id, signal);
    },
  };
}
