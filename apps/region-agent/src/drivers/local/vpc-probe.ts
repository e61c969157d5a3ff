import { type VpcSpec } from '@nebo/contracts';
import { NetworkSpace } from './netns.js';
import { makeTables } from './nft.js';
import { makeBridge, openDoor } from './vpc-links.js';
import { vpcTables } from './vpc-rules.js';

/** Why a VPC cannot be made here, or null: makes one, with its rules and a tap, in a namespace that goes again. */
export async function vpcFails(): Promise<string | null> {
  const space = new NetworkSpace(`nebo-probe-vpc-${process.pid}`);
  const port = { id: 'probe', mac: '02:00:00:00:00:01', address: '10.0.0.2' };
  const spec: VpcSpec = {
    account_id: '',
    subnet: '10.0.0.0/24',
    gateway: '10.0.0.1',
    ports: [port],
    floating_ips: [{ id: 'probe', address: '192.0.2.1', port_id: port.id }],
    nat: { id: 'probe', address: '192.0.2.2' },
  };
  const ways = [
    { id: 'probe', address: '192.0.2.1', port: port.address },
    { id: 'probe', address: '192.0.2.2', port: null },
  ];
  try {
    await space.create();
    await makeTables(space, vpcTables(spec, ways), null);
    await makeBridge(space, spec);
    await openDoor(space, 'probe0', 'tap');
    return null;
  } catch (error) {
    return `network namespaces with bridges, taps and nftables (${(error as Error).message})`;
  } finally {
    await space.remove().catch(() => undefined);
  }
}
