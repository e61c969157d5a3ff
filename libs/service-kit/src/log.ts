import { pino, type Logger } from 'pino';
import type { Config } from './config.js';

const levels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'];

/** The process's log: JSON lines on stderr, so that stdout stays for data. Secrets that slip into fields are masked. */
export function createLog(config: Config, name: string): Logger {
  const level = config.text('NEBO_LOG_LEVEL', 'info');
  if (!levels.includes(level))
    throw new Error(`NEBO_LOG_LEVEL must be one of ${levels.join(', ')}, not "${level}"`);
  // Synchronous: what was logged before a crash is what one wants to read after it.
  const stderr = pino.destination({ fd: 2, sync: true, maxLength: 1_048_576 });
  // A log that cannot be written (a full disk, a closed terminal) must not throw into whatever has something to say.
  stderr.on('error', () => undefined);
  return pino(
    {
      level,
      base: { name },
      redact: {
        paths: ['*.authorization', '*.password', '*.key', '*.token', '*.secret', 'headers.authorization'],
        censor: '********',
      },
    },
    stderr,
  );
}
