import { rmSync } from 'node:fs';

/** Removes the build of the tests. */
export default function teardown() {
  if (process.env.NEBO_CLI_TEST_DIST)
    rmSync(process.env.NEBO_CLI_TEST_DIST, { recursive: true, force: true });
}
