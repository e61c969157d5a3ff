import { join, resolve } from 'node:path';
import { pino } from 'pino';
import { createRegionAgent } from './agent.js';
import { HttpControlPlane } from './control/http-control-plane.js';
import { wakeDoorOptions } from './wake/settings.js';

const {
  NEBO_API_URL: url = 'http://127.0.0.1:4000',
  NEBO_REGION_TOKEN: token,
  NEBO_HOME: home = '.nebo',
} = process.env;
if (!token) throw new Error('NEBO_REGION_TOKEN is not set: make one with `npm run -s admin -- region token`');
const destination = pino.destination({ dest: 1, sync: true, maxLength: 1_048_576 });
// A reader that is gone, or a full disk, must not end what the region runs.
destination.on('error', () => undefined);
const agent = createRegionAgent({
  controlPlane: new HttpControlPlane({ url, token }),
  home: join(resolve(home), 'region-agent'),
  log: pino({ name: 'region-agent' }, destination),
  wake: wakeDoorOptions(process.env),
});
// SIGHUP: its terminal was closed.
for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const)
  process.once(name, () => void agent.stop().then(() => process.exit(0)));
await agent.start();
