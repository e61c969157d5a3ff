/**
 * Generates the Prisma client of the service in whose folder it runs (target `generate`). No engine is fetched: the client
 * talks to PostgreSQL through the pg adapter, and the schema engine is only asked for by name.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { root } from '../start/node-binary.mjs';

const done = spawnSync(
  process.execPath,
  [join(root, 'node_modules/prisma/build/index.js'), 'generate', '--schema', 'prisma/schema.prisma'],
  {
    stdio: ['ignore', 'pipe', 'pipe'],
    encoding: 'utf8',
    env: {
      ...process.env,
      // Any existing file does: generate checks that it is there and never runs it.
      PRISMA_SCHEMA_ENGINE_BINARY: process.execPath,
      CHECKPOINT_DISABLE: '1',
      PRISMA_HIDE_UPDATE_MESSAGE: '1',
      DATABASE_URL: process.env.DATABASE_URL ?? 'postgres://unused@127.0.0.1/unused',
    },
  },
);
if (done.status !== 0) {
  process.stderr.write(`${done.stdout}${done.stderr}`);
  process.exit(done.status ?? 1);
}
