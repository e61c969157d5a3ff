import { join } from 'node:path';
import { root } from '../../start/node-binary.mjs';

/** The git host of the tests, which notes when it sends a delivery: `sentAt` of each, by `performance.now()`. */
export async function startGitHost() {
  const { GitHostPart } = await import(join(root, 'libs/test-kit/dist/index.js'));
  const host = await GitHostPart.start();
  const keep = host.deliveries.push.bind(host.deliveries);
  host.deliveries.push = (...made) =>
    keep(...made.map((one) => Object.assign(one, { sentAt: performance.now() })));
  return host;
}
