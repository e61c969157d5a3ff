/**
 * Builds the command line: `node build.mjs [--contract FILE] [--out FOLDER]`.
 *
 * CommonJS, because that starts faster than an ESM bundle (panel-and-cli.md section 9): `main.js` starts
 * `nebo.js`, and beside it lie the parts that few commands need. The contract is embedded as a compact table of operations.
 */
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { build } from 'esbuild';

const here = fileURLToPath(new URL('.', import.meta.url));
const { values } = parseArgs({
  options: {
    contract: { type: 'string', default: join(here, '../../libs/contracts/openapi/v1.json') },
    out: { type: 'string', default: join(here, 'dist') },
  },
});

/** The source of the command that is used here too, so that build and `--server-contract` read a contract alike. */
async function compactContract(document) {
  const { outputFiles } = await build({
    entryPoints: [join(here, 'src/contract/compact.ts')],
    bundle: true,
    format: 'esm',
    write: false,
  });
  const module = await import(
    `data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString('base64')}`
  );
  return module.compactContract(document);
}

/** @returns {Promise<object>} the compact table of the contract */
async function contractTable() {
  let text;
  try {
    text = await readFile(values.contract, 'utf8');
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
    console.error(
      `The contract ${relative(process.cwd(), values.contract)} is missing, and nebo cannot be built without it. ` +
        'Make it first: npm run contract',
    );
    process.exit(1);
  }
  return compactContract(JSON.parse(text));
}

/** Parts that few commands need, in files of their own: what is not read need not be compiled on every start. */
const apart = { 'jq-wasm': 'jq.js', yaml: 'yaml.js', '@nebo/archive': 'archive.js' };

const partsApart = {
  name: 'parts-apart',
  setup(bundler) {
    bundler.onResolve({ filter: new RegExp(`^(${Object.keys(apart).join('|')})$`) }, (found) =>
      found.kind === 'entry-point' ? undefined : { path: `./${apart[found.path]}`, external: true },
    );
  },
};

/** commander loads child_process for subcommands in files of their own, which nebo does not have. */
const noChildProcess = {
  name: 'no-child-process',
  setup(bundler) {
    bundler.onResolve({ filter: /^node:child_process$/ }, (found) =>
      found.importer.includes('/commander/') ? { path: 'child_process', namespace: 'empty' } : undefined,
    );
    bundler.onLoad({ filter: /.*/, namespace: 'empty' }, () => ({ contents: 'module.exports = {};' }));
  },
};

const late = ['crypto', 'readline', 'fs/promises', 'timers/promises', 'stream/promises', 'os'];

/**
 * These parts of Node are loaded when one of their functions is first read: they cost a third of the start, and
 * `nebo --help` needs none of them.
 */
const lateBuiltins = {
  name: 'late-builtins',
  setup(bundler) {
    bundler.onResolve({ filter: new RegExp(`^node:(${late.join('|')})$`) }, (found) =>
      found.namespace === 'late'
        ? { path: found.path, external: true }
        : { path: found.path, namespace: 'late' },
    );
    bundler.onLoad({ filter: /.*/, namespace: 'late' }, async ({ path }) => {
      const names = Object.keys(await import(path)).filter(
        (name) => name !== 'default' && name !== 'module.exports',
      );
      const contents = `for (const name of ${JSON.stringify(names)})
        Object.defineProperty(module.exports, name, { enumerable: true, get: () => require(${JSON.stringify(path)})[name] });`;
      return { contents };
    });
  },
};

const table = await contractTable();
const { version } = JSON.parse(await readFile(join(here, 'package.json'), 'utf8'));

/** @type {import('esbuild').BuildOptions} */
const common = {
  bundle: true,
  platform: 'node',
  target: 'node20',
  format: 'cjs',
  conditions: ['nebo-src'],
  legalComments: 'none',
  logLevel: 'warning',
};

await mkdir(values.out, { recursive: true });
await Promise.all([
  build({
    ...common,
    entryPoints: [join(here, 'src/main.ts')],
    outfile: join(values.out, 'nebo.js'),
    // Whitespace only: names stay readable in a stack trace that a user sends.
    minifyWhitespace: true,
    minifySyntax: true,
    define: {
      __NEBO_VERSION__: JSON.stringify(version),
      __NEBO_CONTRACT__: JSON.stringify(JSON.stringify(table)),
    },
    plugins: [partsApart, noChildProcess, lateBuiltins],
  }),
  ...Object.entries(apart).map(([name, file]) =>
    build({
      ...common,
      entryPoints: [name],
      outfile: join(values.out, file),
      absWorkingDir: here,
      minifyWhitespace: true,
    }),
  ),
]);
// Compiled once and kept in the user's own cache folder (never the shared one of /tmp): a fifth less at every start.
const launcher = `#!/usr/bin/env node
const { XDG_CACHE_HOME: cache, HOME: home } = process.env;
if (cache || home) require('node:module').enableCompileCache?.(\`\${cache || \`\${home}/.cache\`}/nebo/compile\`);
require('./nebo.js');
`;
await writeFile(join(values.out, 'main.js'), launcher);
// The package is ESM; what is built is not.
await writeFile(join(values.out, 'package.json'), '{ "type": "commonjs" }\n');
await chmod(join(values.out, 'main.js'), 0o755);
