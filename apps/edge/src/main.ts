import { pino } from 'pino';
import { runEdge } from './run.js';

const logger = pino({ name: 'edge' });
try {
  await runEdge(logger);
} catch (error) {
  logger.fatal({ err: error }, error instanceof Error ? error.message : 'the edge could not start');
  process.exitCode = 1;
}
