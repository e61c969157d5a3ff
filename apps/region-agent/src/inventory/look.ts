import { type RegionThing } from '@nebo/contracts';
import { type AgentDrivers } from '../drivers/create.js';

/** Where an agent looks: what its drivers say that there is, and what its host has of them. */
export interface LookParts {
  drivers: Pick<AgentDrivers, 'machines' | 'networks'>;
  /** Looks past the drivers at the host itself; null where nothing of it is real. */
  host: (() => Promise<RegionThing[]>) | null;
}

/** All that the region has of machines and networks. @throws whatever the host's tools throw */
export async function lookAround({ drivers, host }: LookParts): Promise<RegionThing[]> {
  const things: RegionThing[] = [];
  for (const { id, state } of await drivers.machines.list())
    things.push({ kind: 'machine', id, of: `vm:${id}`, state });
  for (const { id, state, facts } of await drivers.networks.list()) {
    things.push({ kind: 'network', id, of: `vpc:${id}`, state });
    for (const way of facts.floating_ips ?? [])
      things.push({ kind: 'floating_ip', id: way, of: `vpc:${id}`, state: 'works' });
  }
  if (host) things.push(...(await host()));
  return things;
}
