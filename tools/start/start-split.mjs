/** `npm run start:split`: every service as a process of its own, on empty data that goes with it. Ctrl-C stops all. */
import { ensureBuilt, ensureInstalled } from './install.mjs';

await ensureInstalled();
await ensureBuilt();
const { startSplit } = await import('../../e2e/harness/split.mjs');
try {
  const split = await startSplit({ verbose: true });
  const { accounts } = split.credentials;
  console.log(
    JSON.stringify(
      {
        base_url: split.baseUrl,
        ai_url: split.aiUrl,
        edge_url: split.edgeUrl,
        dns_address: split.dnsAddress,
        accounts,
      },
      null,
      2,
    ),
  );
  const stop = () => split.stop().then(() => process.exit(0));
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, stop);
} catch (error) {
  console.error(`start:split: ${error.message}`);
  process.exit(1);
}
