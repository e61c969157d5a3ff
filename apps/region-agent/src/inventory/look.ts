import { type RegionThing } from '@nebo/contracts';
import { type AgentDrivers } from '../drivers/create.js';

/**
 * All that the region has of machines and networks: what the drivers say that there is, and what lies on the host itself.
 * @throws whatever the host's tools throw
 */
export async function lookAround({
  machines,
  networks,
}: Pick<AgentDrivers, 'machines' | 'networks'>): Promise<RegionThing[]> {
  const things: RegionThing[] = [];
  for (const { id, state } of await machines.list())
    things.push({ kind: 'machine', id, of: `vm:${id}`, state });
  for (const { id, state, facts } of await networks.list()) {
    things.push({ kind: 'network', id, of: `vpc:${id}`, state });
    // A driver that makes them real shows their addresses on the host instead.
    for (const way of facts.floating_ips ?? [])
      things.push({ kind: 'floating_ip', id: way, of: `vpc:${id}`, state: 'works' });
  }
  things.push(...((await machines.onHost?.()) ?? []), ...((await networks.onHost?.()) ?? []));
  return things;
}
