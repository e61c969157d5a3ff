/** A process that stops in order and talks while it does, for `process.spec.ts`. */
import { Config } from '../src/config.js';
import { createLog } from '../src/log.js';
import { outliveReaders, stopOnSignal } from '../src/process.js';

outliveReaders();
const log = createLog(new Config({}), 'child');
stopOnSignal(async () => {
  process.stderr.write('stopping …\n');
  for (let left = 3; left > 0; left -= 1) {
    log.warn({ left }, 'still at it');
    process.stdout.write(`${left}\n`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  process.send?.('stopped');
});
setInterval(() => undefined, 1_000);
process.send?.('ready');
