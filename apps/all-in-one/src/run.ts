import { Config, ConfigError, createLog, homeOf, stopOnSignal, telemetryOf } from '@nebo/service-kit';
import { Progress } from './progress.js';
import { startInstallation } from './installation.js';
import { summary } from './summary.js';

/** Starts the installation, prints the summary and stops it at a signal. Errors of people are one line. */
export async function runInstallation(): Promise<void> {
  const progress = new Progress();
  try {
    const config = new Config(
      process.env.NEBO_LOG_LEVEL ? process.env : { ...process.env, NEBO_LOG_LEVEL: 'warn' },
    );
    const log = createLog(config, 'nebo');
    const stopTelemetry = await telemetryOf('nebo', config, log);
    const installation = await startInstallation({ config, log, onStep: (text) => progress.step(text) });
    stopOnSignal(async () => {
      process.stderr.write('\nstopping …\n');
      await installation.stop().finally(stopTelemetry);
      process.stderr.write('stopped; the data stays in the data folder\n');
    });
    process.stdout.write(summary(installation, homeOf(config), progress.seconds));
  } catch (error) {
    const plain = error instanceof ConfigError || !process.env.NEBO_DEBUG;
    process.stderr.write(
      `nebo does not start: ${plain ? (error as Error).message : String((error as Error).stack)}\n`,
    );
    process.exit(1);
  }
}
