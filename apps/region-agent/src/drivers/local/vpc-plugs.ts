import { type PortSpec, type VpcSpec } from '@nebo/contracts';
import { type AgentLog } from '../../agent-log.js';
import { portFault } from '../address-book.js';
import { LaunchRefused } from '../sandbox.js';
import { type PlugPlace, type PortPlugs } from '../types.js';
import { type Device, NetworkSpace } from './netns.js';
import { linkDoor, putOnBridge } from './vpc-links.js';
import { doorOf } from './vpc-rules.js';

export interface VpcPlugsParts {
  /** Settled when the VPC's bridge is there. @throws when it does not come; the signal's reason */
  whenMade(vpcId: string, signal: AbortSignal): Promise<void>;
  /** One change of a VPC after the other. */
  inTurn<T>(vpcId: string, work: () => Promise<T>): Promise<T>;
  spaceOf(vpcId: string): NetworkSpace;
  drop(vpcId: string, portId: string): Promise<void>;
  log: AgentLog;
}

/**
 * Interfaces in VPCs of what has a namespace of its own: replicas and runs. They end with their agent, so what is remembered
 * here need not outlive it.
 */
export class VpcPlugs implements PortPlugs {
  /** By the port. */
  private readonly joined = new Map<string, { port: PortSpec; place: PlugPlace }>();

  constructor(private readonly parts: VpcPlugsParts) {}

  async join(port: PortSpec, place: PlugPlace, signal: AbortSignal): Promise<void> {
    const fault = portFault(port);
    if (fault !== null) throw new LaunchRefused(`the port in its private network cannot be made: ${fault}`);
    const { whenMade, inTurn, spaceOf } = this.parts;
    await whenMade(port.vpc_id, signal).catch((error: unknown) => {
      signal.throwIfAborted();
      throw new LaunchRefused('its private network has not come to this region in time', { cause: error });
    });
    await inTurn(port.vpc_id, async () => {
      this.joined.set(port.port_id, { port, place });
      await linkDoor(spaceOf(port.vpc_id), port, place);
    });
  }

  async leave(port: PortSpec): Promise<void> {
    this.joined.delete(port.port_id);
    await this.parts.drop(port.vpc_id, port.port_id);
  }

  /**
   * Puts back what is lost of a VPC that was just made or looked at, for ports that it still has; in the VPC's turn. Nobody
   * else's network is held up by what fails here.
   */
  async mend(vpcId: string, { ports }: Pick<VpcSpec, 'ports'>): Promise<void> {
    const known = new Set(ports.map(({ id }) => id));
    const mine = [...this.joined.values()].filter(
      ({ port }) => port.vpc_id === vpcId && known.has(port.port_id),
    );
    if (mine.length === 0) return;
    const space = this.parts.spaceOf(vpcId);
    const devices = new Map(
      (await space.show<Device>('link', 'show')).map((device) => [device.ifname, device] as const),
    );
    for (const { port, place } of mine) {
      const device = devices.get(doorOf(port.port_id));
      if (device?.master === 'br0' && device.flags.includes('UP')) continue;
      if (!(await new NetworkSpace(place.namespace).exists())) continue;
      const again = device ? putOnBridge(space, device.ifname) : linkDoor(space, port, place);
      await again.catch((error: unknown) => {
        const fields = { vpc: vpcId, port: port.port_id, error: String(error) };
        this.parts.log.warn(fields, 'the interface of a replica in its VPC was not put back');
      });
    }
  }
}
