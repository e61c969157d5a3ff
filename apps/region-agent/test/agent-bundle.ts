import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

/** The agent from its sources as one file, for tests that end its process. */
export async function bundleAgent(outfile: string): Promise<void> {
  await build({
    entryPoints: [fileURLToPath(new URL('../src/main.ts', import.meta.url))],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    conditions: ['nebo-src'],
    // A package's form for bundlers first: what some have for Node finds its parts in ways that no bundler follows.
    mainFields: ['module', 'main'],
    banner: {
      js: `import { createRequire as _r } from 'node:module'; const require = _r(import.meta.url);`,
    },
    logLevel: 'error',
  });
}
