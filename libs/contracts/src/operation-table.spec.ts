import { OperationTable } from './operation-table.js';

const operation = (operationId: string) => ({ operationId, 'x-nebo-service': 's', 'x-nebo-permission': [] });
const table = new OperationTable({
  paths: {
    '/apps': { get: operation('list') },
    '/apps/{app_id}': { get: operation('get'), delete: operation('delete') },
    '/apps/special': { get: operation('special') },
    '/apps/{app_id}/env/{env_var_id}': { delete: operation('unset') },
  },
});
const idOf = (method: string, path: string) => {
  const match = table.match(method, path);
  return match.found === 'operation' ? [match.operation.id, ...match.ids] : match.found;
};

describe('operation table', () => {
  it.each([
    ['GET', '/apps', ['list']],
    ['GET', '/apps/1', ['get', '1']],
    ['GET', '/apps/special', ['special']],
    ['DELETE', '/apps/1/env/2', ['unset', '1', '2']],
    ['PUT', '/apps/1', 'path'],
    ['GET', '/apps/1/env', 'nothing'],
    ['GET', '/apps/', 'nothing'],
    ['GET', '/', 'nothing'],
    ['GET', '', 'nothing'],
    ['GET', '/apps/1/env/2/3', 'nothing'],
    ['GET', '/__proto__', 'nothing'],
  ])('%s %s', (method, path, expected) => {
    expect(idOf(method, path)).toEqual(expected);
  });

  it('names the methods that a path has', () => {
    expect(table.match('PUT', '/apps/1')).toEqual({ found: 'path', allow: ['DELETE', 'GET'] });
  });
});
