import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { portSettingOf, serviceNames, urlSettingOf } from '@nebo/service-kit';

const root = fileURLToPath(new URL('../../../', import.meta.url));

/** What looks like a setting and is none: marks that the agent puts into the environment of what it starts. */
const marks = new Set(['NEBO_RUN', 'NEBO_GROUPS', 'NEBO_PRIVATE_ADDRESS']);
/** One line of the guide stands for these. */
const perService = new Set(serviceNames.flatMap((name) => [urlSettingOf(name), portSettingOf(name)]));

describe('the operating guide', () => {
  it('names every setting that the code reads', () => {
    const guide = readFileSync(join(root, 'docs/operating.md'), 'utf8');
    const files = globSync(['apps/*/src/**/*.ts', 'libs/*/src/**/*.ts'], { cwd: root }).filter(
      // The command line tells its own: nebo help environment.
      (file) => !file.endsWith('.spec.ts') && !file.startsWith('apps/cli/') && !file.includes('/generated/'),
    );
    expect(files.length).toBeGreaterThan(200);
    const missing = new Map<string, string>();
    for (const file of files) {
      for (const [name] of readFileSync(join(root, file), 'utf8').matchAll(/\bNEBO(?:_[A-Z]+)+\b(?!_)/g)) {
        if (!marks.has(name) && !perService.has(name) && !guide.includes(`\`${name}\``))
          missing.set(name, file);
      }
    }
    expect([...missing]).toEqual([]);
  });
});
