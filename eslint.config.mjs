import js from '@eslint/js';
import nx from '@nx/eslint-plugin';
import tseslint from 'typescript-eslint';

/** Shell strings are forbidden everywhere: commands are argv arrays (docs/architecture.md, Security). */
const noShell = [
  {
    name: 'node:child_process',
    importNames: ['exec', 'execSync'],
    message: 'Use execFile/spawn with an argv array.',
  },
  { name: 'child_process', message: 'Import node:child_process and use an argv array.' },
];

export default tseslint.config(
  {
    ignores: [
      '**/dist/**',
      '**/node_modules/**',
      '**/src/generated/**',
      '.nx/**',
      '.nebo/**',
      'e2e/fixtures/**',
    ],
  },
  js.configs.recommended,
  ...tseslint.configs.recommended,
  {
    files: ['**/*.ts'],
    plugins: { '@nx': nx },
    rules: {
      '@nx/enforce-module-boundaries': [
        'error',
        {
          enforceBuildableLibDependency: false,
          allow: [],
          depConstraints: [
            { sourceTag: 'type:lib', onlyDependOnLibsWithTags: ['type:lib'] },
            { sourceTag: 'type:app', onlyDependOnLibsWithTags: ['type:lib'] },
            { sourceTag: 'type:bundle', onlyDependOnLibsWithTags: ['type:lib', 'type:app'] },
            { sourceTag: 'type:test', onlyDependOnLibsWithTags: ['type:lib', 'type:app', 'type:bundle'] },
          ],
        },
      ],
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'inline-type-imports' }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      '@typescript-eslint/no-explicit-any': 'error',
      'no-restricted-imports': ['error', { paths: noShell }],
      'max-lines': ['error', { max: 420, skipBlankLines: true, skipComments: true }],
      eqeqeq: ['error', 'smart'],
    },
  },
  {
    // NestJS resolves constructor parameters from emitted metadata, which a type-only import erases.
    files: ['apps/**/*.ts', 'libs/service-kit/**/*.ts', 'libs/contracts/**/*.ts'],
    rules: { '@typescript-eslint/consistent-type-imports': 'off' },
  },
  {
    files: ['**/*.mjs', '**/*.js'],
    languageOptions: {
      globals: {
        process: 'readonly',
        console: 'readonly',
        URL: 'readonly',
        Buffer: 'readonly',
        fetch: 'readonly',
        setTimeout: 'readonly',
        clearTimeout: 'readonly',
        setInterval: 'readonly',
        clearInterval: 'readonly',
        TextDecoder: 'readonly',
        TextDecoderStream: 'readonly',
        AbortController: 'readonly',
        AbortSignal: 'readonly',
        performance: 'readonly',
      },
    },
    rules: { 'no-restricted-imports': ['error', { paths: noShell }] },
  },
);
