/**
 * `npm run db:migration:new -- SERVICE NAME`: makes the folder of a new migration for a service and says what to write
 * there. Migrations are SQL by hand, because row-level security and guarded statements are beyond a generator.
 */
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../start/node-binary.mjs';

const [service, name] = process.argv.slice(2);
const folder = join(root, 'apps', service ?? '', 'prisma/migrations');
if (!name || !/^[a-z0-9_]+$/.test(name) || !existsSync(folder)) {
  console.error(
    'usage: npm run db:migration:new -- SERVICE NAME   (NAME: a-z, 0-9, _; SERVICE: a folder of apps/ with prisma/migrations)',
  );
  process.exit(2);
}
const time = new Date().toISOString().replace(/\D/g, '').slice(0, 14);
const target = join(folder, `${time}_${name}`);
mkdirSync(target);
writeFileSync(
  join(target, 'migration.sql'),
  '-- Say here what changes and why; then the statements. Change prisma/schema.prisma to match.\n',
);
console.log(join(target, 'migration.sql'));
