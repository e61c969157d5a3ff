import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RegionInfo, WakeDesk } from '@nebo/contracts';
import { createRegionAgent, HttpControlPlane, wakeDoorOptions } from '@nebo/region-agent';
import type { Peers, Runtime } from '@nebo/service-kit';

/** The agent of this process, and what a person should know of its drivers. */
export interface RunningAgent {
  notes: string[];
  /** Where the edge of this process asks for apps that sleep. */
  desk: WakeDesk;
  connected(): boolean;
  stop(): Promise<void>;
}

/** Starts the agent of the default region with its token, which is minted at the first start and kept beside the data. */
export async function startAgent(runtime: Runtime, peers: Peers, apiUrl: string): Promise<RunningAgent> {
  const token = await regionToken(runtime.home, peers);
  const agent = createRegionAgent({
    controlPlane: new HttpControlPlane({ url: apiUrl, token }),
    home: join(runtime.home, 'region-agent'),
    log: runtime.log.child({ service: 'region-agent' }),
    // Stopping the installation stops everything (design.md, 7): the next start makes it again.
    endsAll: true,
    wake: wakeDoorOptions(runtime.config.env) ?? 'here',
  });
  await agent.start();
  const notes = Object.entries(agent.status().drivers)
    .filter(([, choice]) => !choice.isolated)
    .map(([area, { why, simulated }]) =>
      simulated
        ? `${area} are simulated, nothing of them is real (${why})`
        : `${area} are NOT isolated from this machine (${why})`,
    );
  return {
    notes,
    desk: agent.desk,
    connected: () => agent.status().state === 'connected',
    stop: () => agent.stop(),
  };
}

async function regionToken(home: string, peers: Peers): Promise<string> {
  const path = join(home, 'region.token');
  if (existsSync(path)) {
    const token = readFileSync(path, 'utf8').trim();
    const known = await peers
      .call('compute', '/internal/v1/agents/resolve', { account: null, body: { token } })
      .catch(() => null);
    if (known) return token;
  }
  const regions = await peers.call<RegionInfo[]>('compute', '/internal/v1/regions', { account: null });
  const region = regions.find((candidate) => candidate.is_default)!;
  const { token } = await peers.call<{ token: string }>(
    'compute',
    `/internal/v1/operator/regions/${region.id}/token`,
    { account: null, body: {} },
  );
  writeFileSync(path, `${token}\n`, { mode: 0o600 });
  return token;
}
