import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { compactContract, type OpenApiDocument } from '../src/contract/compact.js';
import { findOperation } from '../src/contract/find.js';

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
