import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  createDrivers,
  createRegionAgent,
  engineSettings,
  HttpControlPlane,
  probeDrivers,
  type AgentLog,
  type BuildLimits,
  type DriverName,
  type Egress,
  type RegionAgent,
  type WakeDoorOptions,
} from '../src/index.js';
import { Runs } from '../src/system/runs.js';
import { FakeControlPlane } from './fake-control-plane.js';

/** Why local networks cannot be tested here, or null when they can. */
export async function localNetworksMissing(): Promise<string | null> {
  const { networks } = await probeDrivers({});
  return networks.driver === 'local' ? null : networks.why;
}

/** Why `local` cannot be tested here, or null when it can. */
export async function localMissing(): Promise<string | null> {
  const { builds } = await probeDrivers({});
  return builds.driver === 'local' ? null : builds.why;
}

export const testLog: AgentLog = {
  debug: () => undefined,
  info: () => undefined,
  warn: (fields, message) => process.env['NEBO_TEST_LOG'] && console.warn(message, fields),
  error: (fields, message) => process.env['NEBO_TEST_LOG'] && console.error(message, fields),
};

export interface Stage {
  plane: FakeControlPlane;
  agent: RegionAgent;
  home: string;
  end(): Promise<void>;
}

/** A control plane and an agent that follows it, with all areas on one driver. */
export async function stage(
  driver: DriverName,
  limits: Partial<BuildLimits> = {},
  egress: Egress | null = null,
): Promise<Stage> {
  const plane = await new FakeControlPlane().start();
  const home = await mkdtemp(join(tmpdir(), 'nebo-agent-'));
  const running: Stage = {
    plane,
    agent: await startAgent(plane, home, driver, limits, egress),
    home,
    end: async () => {
      // The one that is there now: a test may have put another in its place.
      await running.agent.stop();
      await plane.stop();
      await rm(home, { recursive: true, force: true });
    },
  };
  return running;
}

export async function startAgent(
  plane: FakeControlPlane,
  home: string,
  driver: DriverName,
  buildLimits: Partial<BuildLimits> = {},
  egress: Egress | null = null,
  networks: DriverName = 'simulated',
  endsAll = false,
  wake: WakeDoorOptions | 'here' | null = null,
): Promise<RegionAgent> {
  const choices = await probeDrivers({
    NEBO_DRIVERS: `builds=${driver},replicas=${driver},networks=${networks},machines=simulated`,
  });
  const runs = new Runs(home, testLog);
  const drivers = await createDrivers({
    home,
    log: testLog,
    runs,
    egress,
    choices,
    buildLimits,
    // Not one that this machine happens to have.
    engine: engineSettings({
      NEBO_CONTAINER_ENGINE: 'off',
      ...(process.env['NEBO_CONTAINER_ENGINE'] ? process.env : {}),
    }),
    graceMs: 1_000,
  });
  const agent = createRegionAgent({
    controlPlane: new HttpControlPlane({ url: plane.url, token: plane.token }),
    home,
    log: testLog,
    drivers,
    endsAll,
    wake,
    settings: { fullMs: 2_000, waitSeconds: 2 },
  });
  await agent.start();
  return agent;
}

export const later = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `look` gives something. */
export async function eventually<T>(look: () => T | Promise<T>, ms = 10_000): Promise<NonNullable<T>> {
  const until = Date.now() + ms;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > until) throw new Error(`did not happen within ${ms} ms`);
    await later(20);
  }
}
