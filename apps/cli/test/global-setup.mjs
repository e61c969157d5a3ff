import { execFileSync } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { contractFixture } from './contract-fixture.mjs';

/** Builds the command as it ships, with the small contract inside, before the first test. */
export default function setup() {
  const out = mkdtempSync(join(tmpdir(), 'nebo-cli-test-'));
  const contract = join(out, 'contract.json');
  writeFileSync(contract, JSON.stringify(contractFixture()));
  const build = fileURLToPath(new URL('../build.mjs', import.meta.url));
  execFileSync(process.execPath, [build, '--contract', contract, '--out', out], { stdio: 'inherit' });
  process.env.NEBO_CLI_TEST_DIST = out;
}
