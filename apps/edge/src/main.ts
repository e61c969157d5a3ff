import { pino } from 'pino';
import { AccessLog } from './observe/access-log.js';
import { runEdge } from './run.js';

// One destination for both, so that no line is written into the midst of another. It writes while the edge works, the rest at
// the end of the process; a reader that hangs costs lines in the end, not all memory.
const destination = pino.destination({ dest: 1, sync: false, maxLength: 16 * 1024 * 1024 });
// A reader that is gone, or a full disk, must not end what serves.
destination.on('error', () => undefined);
const logger = pino({ name: 'edge' }, destination);
const access = new AccessLog(destination, 'edge');
// Before the destination writes what it has.
process.prependOnceListener('exit', () => access.flush());
try {
  await runEdge(logger, access.note);
} catch (error) {
  logger.fatal({ err: error }, error instanceof Error ? error.message : 'the edge could not start');
  process.exitCode = 1;
}
