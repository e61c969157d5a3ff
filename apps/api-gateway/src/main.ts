/** Starts the gateway alone: `nx serve api-gateway`. Services are reached by their `NEBO_<SERVICE>_URL`. */
import { busFrom, createRuntime, runProcess } from '@nebo/service-kit';
import { committedContracts, createGateway } from './gateway.js';

await runProcess('api-gateway', async (config, log) => {
  const bus = await busFrom(config, log);
  // The gateway owns nothing durable: no database behind it.
  const runtime = createRuntime({ config, log, adminUrl: 'postgres://none', bus });
  const gateway = createGateway({ runtime, contracts: committedContracts(), alone: false });
  const { apiPort, aiPort } = await gateway.start();
  log.info({ apiPort, aiPort }, 'api-gateway is ready');
  return async () => {
    await gateway.stop();
    await bus.close();
    await runtime.targets.close();
  };
});
