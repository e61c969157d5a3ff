import { randomBytes } from 'node:crypto';
import { tool } from '../src/drivers/local/exec.js';
import { NetworkSpace } from '../src/drivers/local/netns.js';
import { guardSlots } from '../src/drivers/local/slot-guard.js';
import { localMissing } from './agent-kit.js';

const missing = await localMissing();

/** In a network of the test's own, which plays the host. */
(missing === null ? describe : describe.skip)(
  `addresses of runs that are gone${missing === null ? '' : ` (SKIPPED: ${missing})`}`,
  () => {
    const host = new NetworkSpace(`nebo-guard-${randomBytes(4).toString('hex')}`);
    const wayTo = (address: string) => host.run(['ip', 'route', 'get', address]);

    beforeEach(async () => {
      await host.create();
      await host.ip([
        'link add up0 type veth peer name up1',
        'link set up1 up',
        'addr add 192.0.2.2/24 dev up0',
        'link set up0 up',
        'route add default via 192.0.2.1',
      ]);
    });
    afterEach(() => tool(['ip', 'netns', 'del', host.name!]));

    it('lead nowhere, while those of a link that is there lead to it', async () => {
      expect(await wayTo('100.97.0.6')).toContain('via 192.0.2.1');
      // Twice: the next agent finds what the one before it left.
      expect([await guardSlots(host), await guardSlots(host)]).toEqual([[], []]);
      await expect(wayTo('100.97.0.6')).rejects.toThrow(/No route to host|unreachable/i);
      await host.ip([
        'link add run0 type veth peer name run1',
        'link set run1 up',
        'addr add 100.97.0.5/30 dev run0',
        'link set run0 up',
      ]);
      expect(await wayTo('100.97.0.6')).toContain('dev run0');
      await host.ip(['link del run0']);
      await expect(wayTo('100.97.0.6')).rejects.toThrow(/No route to host|unreachable/i);
      expect(await wayTo('198.51.100.1')).toContain('via 192.0.2.1');
    });

    it('halves of a default route name no network', async () => {
      await host.ip(['route add 0.0.0.0/1 via 192.0.2.7', 'route add 128.0.0.0/1 via 192.0.2.7']);
      expect(await guardSlots(host)).toEqual([]);
      await expect(wayTo('100.97.0.6')).rejects.toThrow(/No route to host|unreachable/i);
    });

    it('a network that the host has there is left alone, and named', async () => {
      await host.ip(['route add 100.96.0.0/11 via 192.0.2.9']);
      expect(await guardSlots(host)).toEqual(['100.96.0.0/11']);
      expect(await wayTo('100.97.0.6')).toContain('via 192.0.2.9');
      // A part of the range counts before the guard in any case.
      await host.ip(['route del 100.96.0.0/11', 'route add 100.99.0.0/16 via 192.0.2.9']);
      expect(await guardSlots(host)).toEqual([]);
      expect(await wayTo('100.99.1.1')).toContain('via 192.0.2.9');
    });
  },
);
