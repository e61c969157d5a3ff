import { readFileSync } from 'node:fs';
import { contractDocument } from '@nebo/service-kit';
import { contractPlans } from './services.js';

describe.each(Object.entries(contractPlans))('contract %s', (name, plan) => {
  const file = new URL(`../../../libs/contracts/openapi/${name}.json`, import.meta.url);

  it('is what the controllers declare (after a change: npm run build && npm run contract)', async () => {
    const committed = JSON.parse(readFileSync(file, 'utf8')) as unknown;
    expect(JSON.parse(JSON.stringify(await contractDocument(plan)))).toEqual(committed);
  });

  it('gives each operation an id of its own, a service, a permission list and a described success', async () => {
    const document = JSON.parse(readFileSync(file, 'utf8')) as {
      paths: Record<string, Record<string, Record<string, unknown>>>;
    };
    const operations = Object.values(document.paths).flatMap((item) => Object.values(item));
    const ids = operations.map((operation) => operation['operationId']);
    expect(new Set(ids).size).toBe(ids.length);
    for (const operation of operations) {
      expect(operation).toMatchObject({
        'x-nebo-service': expect.any(String),
        'x-nebo-permission': expect.any(Array),
        summary: expect.stringMatching(/\S/),
      });
      const success = Object.keys(operation['responses'] as object).filter((status) =>
        status.startsWith('2'),
      );
      expect(success).toHaveLength(1);
    }
  });

  it('declares the common refusals of every operation, each under its own number and with the one body of its door', () => {
    const document = JSON.parse(readFileSync(file, 'utf8')) as {
      paths: Record<string, Record<string, { responses: Record<string, unknown> }>>;
    };
    const bodyAt = (path: string) =>
      name !== 'inference'
        ? 'ErrorBody'
        : path.startsWith('/messages')
          ? 'MessagesErrorBody'
          : 'InferenceErrorBody';
    const operations = Object.entries(document.paths).flatMap(([path, item]) =>
      Object.values(item).map((operation) => [path, operation] as const),
    );
    for (const [path, operation] of operations) {
      for (const status of [400, 401, 402, 403, 404, 405, 409, 413, 415, 429, 503]) {
        expect(operation.responses[status]).toMatchObject({
          content: { 'application/json': { schema: { $ref: `#/components/schemas/${bodyAt(path)}` } } },
        });
      }
    }
  });
});
