import { type NetworkSpace, type Route } from './netns.js';
import { slotRange } from './slots.js';

/**
 * Addresses of runs that are gone must not lead anywhere else: by the host's default route a stranger's machine would get a visitor's
 * request, or be taken for an app that has come up. The route stays when the agent goes, since an edge may still know addresses; all
 * agents of a host have it in common. A host that has a network there itself (pods of a cluster, say) keeps it.
 * @returns the host's own networks around the range: then nothing was done
 */
export async function guardSlots(host: NetworkSpace): Promise<string[]> {
  const around = await host.show<Route>('route', 'show', 'match', slotRange);
  // `default`, or the halves of it that tunnels put before it, name no network.
  const others = around.map(({ dst }) => dst).filter((dst) => dst !== slotRange && lengthOf(dst) >= 8);
  if (others.length === 0) await host.ip([`route replace unreachable ${slotRange} metric 4096`]);
  return others;
}

const lengthOf = (dst: string): number => (dst === 'default' ? 0 : Number(dst.split('/')[1] ?? 32));
