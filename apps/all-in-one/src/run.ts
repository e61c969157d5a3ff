import {
  Config,
  ConfigError,
  createLog,
  homeOf,
  outliveReaders,
  stopOnSignal,
  telemetryOf,
} from '@nebo/service-kit';
import { Progress } from './progress.js';
import { startInstallation } from './installation.js';
import { summary } from './summary.js';

/**
 * Starts the installation, prints the summary and stops it at a signal, also at one that comes while it starts. Errors of people are
 * one line.
 */
export async function runInstallation(): Promise<void> {
  outliveReaders();
  const progress = new Progress();
  let wanted = true;
  const onStep = (text: string) => {
    // A start that is no longer wanted ends at its next step, and takes away what it has made.
    if (!wanted) throw new Error('the start was interrupted');
    progress.step(text);
  };
  try {
    const config = new Config(
      process.env.NEBO_LOG_LEVEL ? process.env : { ...process.env, NEBO_LOG_LEVEL: 'warn' },
    );
    const log = createLog(config, 'nebo');
    const stopTelemetry = await telemetryOf('nebo', config, log);
    const starting = startInstallation({ config, log, onStep });
    stopOnSignal(async () => {
      wanted = false;
      process.stderr.write('\nstopping …\n');
      const installation = await starting.catch(() => null);
      await Promise.resolve(installation?.stop()).finally(stopTelemetry);
      process.stderr.write('stopped; the data stays in the data folder\n');
    });
    const installation = await starting;
    if (wanted) process.stdout.write(summary(installation, homeOf(config), progress.seconds));
  } catch (error) {
    if (!wanted) return;
    const plain = error instanceof ConfigError || !process.env.NEBO_DEBUG;
    process.stderr.write(
      `nebo does not start: ${plain ? (error as Error).message : String((error as Error).stack)}\n`,
    );
    process.exit(1);
  }
}
