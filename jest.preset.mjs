import { fileURLToPath } from 'node:url';

/**
 * The Jest settings of every project: ESM through SWC, workspace libraries read from source
 * (export condition `nebo-src`), so that a test never sees an outdated build.
 * @param {string} displayName the project's name
 * @param {Partial<import('jest').Config>} [more] settings of this project alone
 * @returns {import('jest').Config}
 */
export function jestProject(displayName, more = {}) {
  return {
    displayName,
    testEnvironment: 'node',
    testEnvironmentOptions: { customExportConditions: ['nebo-src', 'node', 'node-addons'] },
    testMatch: ['**/*.spec.ts'],
    testPathIgnorePatterns: ['/node_modules/', '/dist/'],
    modulePathIgnorePatterns: ['<rootDir>/dist'],
    extensionsToTreatAsEsm: ['.ts'],
    moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': '$1' },
    transform: {
      '^.+\\.ts$': [
        '@swc/jest',
        {
          swcrc: false,
          jsc: {
            parser: { syntax: 'typescript', decorators: true },
            transform: { legacyDecorator: true, decoratorMetadata: true, useDefineForClassFields: false },
            target: 'es2023',
            keepClassNames: true,
          },
          module: { type: 'es6' },
          sourceMaps: 'inline',
        },
      ],
    },
    // Specs wait for processes and clocks more than they compute.
    maxWorkers: 2,
    testTimeout: 30_000,
    reporters: ['default', fileURLToPath(new URL('./tools/test/results-reporter.mjs', import.meta.url))],
    ...more,
  };
}
