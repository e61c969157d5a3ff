/** Makes schemas, roles and missing migrations of all services, then ends: the chart's job before an upgrade. */
import { Config, createLog, masterKeyOf, migrateServices } from '@nebo/service-kit';
import { services } from './services.js';

try {
  const config = new Config();
  const url = config.url('DATABASE_URL', undefined, ['postgres:', 'postgresql:']);
  const applied = await migrateServices(url, masterKeyOf(config), services);
  createLog(config, 'migrate').info({ applied }, `${applied.length} migrations applied`);
} catch (error) {
  process.stderr.write(`migrate: ${(error as Error).message}\n`);
  process.exitCode = 1;
}
