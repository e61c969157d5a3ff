/**
 * `npm run contract`: writes libs/contracts/openapi/*.json from the services' controllers. Run it after a change of the
 * contract and commit the result; a test fails while code and files differ. Needs a build.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../start/node-binary.mjs';
import { contractPlans } from '../../apps/all-in-one/dist/services.js';
import { contractDocument } from '../../libs/service-kit/dist/index.js';

const folder = join(root, 'libs/contracts/openapi');
mkdirSync(folder, { recursive: true });
for (const [name, plan] of Object.entries(contractPlans)) {
  const document = await contractDocument(plan);
  writeFileSync(join(folder, `${name}.json`), `${JSON.stringify(document, null, 2)}\n`);
  console.log(`libs/contracts/openapi/${name}.json: ${Object.keys(document.paths).length} paths`);
}
process.exit(0);
