/** The built-in name server alone, with the bench's zone: `node server.mjs PORT FILE`, where FILE has the names as JSON. */
import { readFileSync } from 'node:fs';
import { BuiltinDnsDriver } from '../../../apps/dns/dist/drivers/builtin/index.js';

const [port, file] = process.argv.slice(2);
const { zone, names } = JSON.parse(readFileSync(file, 'utf8'));
const driver = new BuiltinDnsDriver({
  host: '127.0.0.1',
  port: Number(port),
  nameservers: ['ns1.bench.test.'],
  rate: 0,
  onError: (error) => console.error(error),
});
driver.ensure(
  { id: '1', account_id: '1', name: zone, active: true, created_at: 0, serial: 1, default_ttl: 300 },
  names.map(([name, address]) => ({
    name,
    sets: [{ type: 'A', ttl: null, rdata: [Buffer.from(address.split('.').map(Number))] }],
  })),
);
await driver.open();
