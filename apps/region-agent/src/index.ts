/** The region's agent: `createRegionAgent(...)` for all-in-one, `main.ts` as a process of its own. */
export {
  createRegionAgent,
  RegionAgent,
  type AgentSettings,
  type AgentStatus,
  type RegionAgentOptions,
} from './agent.js';
export { silentLog, type AgentLog } from './agent-log.js';
export {
  ControlPlaneError,
  Superseded,
  type AgentSession,
  type ControlPlane,
  type ServicePlane,
} from './control/control-plane.js';
export { HttpControlPlane, type HttpControlPlaneOptions } from './control/http-control-plane.js';
export {
  createDrivers,
  type AgentDrivers,
  type BuildLimits,
  type CreateDriversOptions,
} from './drivers/create.js';
export { egressOf } from './drivers/egress-env.js';
export { probeDrivers, type DriverArea, type DriverChoice, type DriverChoices } from './drivers/probe.js';
export type * from './drivers/types.js';
export { findEngine } from './engine/engines.js';
export { engineSettings } from './engine/settings.js';
export { Runs } from './system/runs.js';
export { findToolchain, toolAdvice, type Toolchain } from './system/toolchain.js';
export { doorOf } from './drivers/local/vpc-rules.js';
export { WakeDoor, type WakeDoorOptions } from './wake/door.js';
export { wakeDoorOptions } from './wake/settings.js';
