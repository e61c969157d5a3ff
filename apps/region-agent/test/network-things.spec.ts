import { randomUUID } from 'node:crypto';
import { lookAround } from '../src/inventory/look.js';
import { doorOf } from '../src/drivers/local/vpc-rules.js';
import { SimulatedMachineDriver } from '../src/drivers/simulated/machines.js';
import { localNetworksMissing } from './agent-kit.js';
import { floatingOf, portOf, specOf, Stand } from './network-kit.js';

const missing = await localNetworksMissing();
const maybe = missing ? describe.skip : describe;

maybe(`what an audit is told of the host’s networks${missing ? ` (SKIPPED: ${missing})` : ''}`, () => {
  let stand: Stand;
  beforeAll(async () => {
    stand = await new Stand().start();
  });
  afterAll(async () => {
    expect(await stand?.end()).toEqual([]);
  });

  const look = async () => {
    const machines = new SimulatedMachineDriver({ dir: '/nonexistent' });
    const things = await lookAround({ machines, networks: stand.driver });
    // A process is known by its number, a folder by its path.
    return things.map(({ kind, id, of }) => `${kind} ${id.replace(/\d+$|.*\//, '')} ${of}`).sort();
  };

  it('everything that a network has, nothing once it is gone, and what somebody left', async () => {
    const [vpc, lost] = [randomUUID(), randomUUID()];
    const port = portOf('10.77.0.5', '05');
    const spec = { ...specOf('10.77.0.0/24', [port]), floating_ips: [floatingOf('203.0.113.9', port)] };
    expect((await stand.driver.ensure(vpc, 1, spec)).facts.floating_ips).toEqual([spec.floating_ips[0]!.id]);
    await stand.driver.tap(vpc, port.id, new AbortController().signal);
    const name = stand.driver.namespaceOf(vpc);
    expect(await look()).toEqual(
      [
        `address 203.0.113. vpc:${vpc}`,
        `folder ${vpc} vpc:${vpc}`,
        `link ${doorOf(port.id).replace(/\d+$/, '')} vpc:${vpc}`,
        `namespace ${name.replace(/\d+$/, '')} vpc:${vpc}`,
        `network ${vpc.replace(/\d+$/, '')} vpc:${vpc}`,
        `process dnsmasq  vpc:${vpc}`,
      ].sort(),
    );
    await stand.driver.remove(vpc);
    expect(await look()).toEqual([]);
    // As if a killed agent had got no further.
    const half = stand.driver.namespaceOf(lost);
    await stand.tool(['ip', 'netns', 'add', half]);
    expect(await look()).toContain(`namespace ${half.replace(/\d+$/, '')} vpc:${lost}`);
    await stand.driver.remove(lost);
  });
});
