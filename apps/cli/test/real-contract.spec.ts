import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { compactContract, type OpenApiDocument } from '../src/contract/compact.js';
import { findOperation } from '../src/contract/find.js';
import { pathParameters } from '../src/contract/table.js';
import { commandOf } from '../src/kinds/command.js';
import { verbGroups } from '../src/kinds/groups.js';
import { type Kind, kinds, type KindWord, references } from '../src/kinds/kinds.js';
import { moreVerbs } from '../src/kinds/verbs-apps.js';

const path = fileURLToPath(new URL('../../../libs/contracts/openapi/v1.json', import.meta.url));
const there = existsSync(path);
if (!there) console.warn('skipped: libs/contracts/openapi/v1.json is not generated yet (npm run contract)');

/** Every call that a command of its own makes. */
const calls = [
  'GET /account',
  'GET /account/balance',
  'GET /usage',
  'GET /projects',
  'GET /projects/{project_id}',
  'POST /projects/{project_id}/apps',
  'GET /apps',
  'GET /apps/{app_id}',
  'PATCH /apps/{app_id}',
  'POST /apps/{app_id}/deploy',
  'POST /apps/{app_id}/deployments',
  'GET /apps/{app_id}/domains',
  'GET /apps/{app_id}/builds',
  'GET /apps/{app_id}/builds/{build_id}',
  'GET /apps/{app_id}/builds/{build_id}/logs',
  'GET /apps/{app_id}/env',
  'POST /apps/{app_id}/env',
  'DELETE /apps/{app_id}/env/{env_var_id}',
  'GET /apps/{app_id}/logs',
  'POST /git/connections',
  'GET /git/connections/{connection_id}',
  'POST /git/authorizations',
  'GET /git/authorizations/{authorization_id}',
];

(there ? describe : describe.skip)('the contract of this repository', () => {
  const table = there
    ? compactContract(JSON.parse(readFileSync(path, 'utf8')) as OpenApiDocument)
    : { version: '', operations: [], records: {} };

  test.each(calls)('has %s', (call) => {
    const [method, template] = call.split(' ') as [string, string];
    expect(findOperation(table, method, template)).toMatchObject({
      kind: 'operation',
      operation: { path: template },
    });
  });

  const lines = [
    ...verbGroups.flatMap(({ name, verbs }) => verbs.map((verb) => [name, verb] as const)),
    ...Object.entries(moreVerbs).flatMap(([name, verbs]) => verbs.map((verb) => [name, verb] as const)),
  ];
  /** Commands that are there once the contract has their operation. */
  const later = ['POST /apps/{app_id}/builds/{build_id}/rollback'];

  test.each(lines.map(([name, verb]) => [`${name} ${verb.usage}`, name, verb] as const))(
    'has what "nebo %s" does, and every id of it is named',
    (_title, name, verb) => {
      const [method, template] = verb.call.split(' ') as [string, string];
      const operation = table.operations.find((one) => one.method === method && one.path === template);
      if (operation === undefined) {
        expect(later).toContain(verb.call);
        return;
      }
      const words = verb.usage.split(' ').slice(1);
      const things = words
        .filter((word) => /^\w+$/.test(word))
        .map((word) => kinds[word as KindWord].id as string);
      const wait = verb.wait === undefined || verb.wait === 'build' ? null : verb.wait;
      for (const path of [template, ...(wait ? [wait.read] : [])]) {
        const given = [
          ...things,
          'app_id',
          'project_id',
          ...(wait?.made && path === wait.read ? [wait.made] : []),
        ];
        for (const id of pathParameters(path)) expect(given).toContain(id);
      }
      if (wait) expect(findOperation(table, 'GET', wait.read).kind).toBe('operation');
      const record = operation.body?.record ? table.records[operation.body.record]!.fields : [];
      const fields = words.flatMap((word) => /[=<](\w+)$/.exec(word)?.[1] ?? []);
      for (const field of [...fields, ...Object.keys(verb.preset ?? {})])
        expect(record.map((one) => one.name)).toContain(field);
      if (verb.ask !== undefined) expect(words).toContain(verb.ask);
      if (verb.rows !== undefined) expect((kinds[verb.rows as KindWord] as Kind).list).toBe(template);
      expect(verb.example).toMatch(new RegExp(`^nebo ${name} ${verb.usage.split(' ')[0]}`));
      const flags = commandOf(name, verb, table)!.flags!.map(({ long }) => long);
      expect(new Set(flags).size).toBe(flags.length);
      const global = [
        '--app',
        '--project',
        '--yes',
        '--output',
        '--columns',
        '--jq',
        '--quiet',
        '--profile',
        '--timeout',
        '--debug',
      ];
      for (const flag of flags) expect(global).not.toContain(flag);
    },
  );

  test('what stands for another thing is a field of the contract, and its kind is listed there', () => {
    const names = new Set([
      ...Object.values(table.records).flatMap(({ fields }) => fields.map(({ name }) => name)),
      ...table.operations.flatMap(({ query }) => query.map(({ name }) => name)),
    ]);
    for (const [field, { kind }] of Object.entries(references)) {
      expect(names).toContain(field);
      expect(findOperation(table, 'GET', kinds[kind].list).kind).toBe('operation');
    }
    for (const { list } of Object.values(kinds))
      expect(findOperation(table, 'GET', list).kind).toBe('operation');
  });

  test('folders are sent as what they are, and logs are streams', () => {
    for (const { path: template, body, answers } of table.operations) {
      if (template.endsWith('/deployments'))
        expect(body).toEqual({ type: 'application/gzip', required: true });
      if (template.endsWith('/logs')) expect(answers.map(({ type }) => type)).toEqual(['text/event-stream']);
    }
  });

  test('every operation has an id, a section, a summary and a permission list; no record lacks', () => {
    const ids = table.operations.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    for (const operation of table.operations) {
      expect(operation.summary).not.toBe('');
      expect(operation.section).not.toBe('other');
      for (const { record } of [...operation.answers, ...(operation.body ? [operation.body] : [])])
        if (record) expect(table.records[record]).toBeDefined();
    }
  });
});
