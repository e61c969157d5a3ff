import { contractDocument } from '@nebo/service-kit';
import { identityBilling } from './identity-billing.module.js';

it('declares the operations of account and projects with their ids, permissions and resources', async () => {
  const document = (await contractDocument({
    title: 't',
    description: 'd',
    definitions: [identityBilling],
  })) as {
    paths: Record<
      string,
      Record<
        string,
        { operationId: string; 'x-nebo-permission': string[]; 'x-nebo-resource': string; responses: object }
      >
    >;
  };
  const table = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([verb, operation]) => [
      `${verb} ${path}`,
      operation.operationId,
      operation['x-nebo-permission'].join(),
      operation['x-nebo-resource'],
      Object.keys(operation.responses)[0],
    ]),
  );
  expect(table.sort()).toEqual([
    ['delete /projects/{project_id}', 'projects_delete_project', 'project:delete', 'project', '204'],
    ['get /account', 'account_whoami', '', 'key', '200'],
    ['get /account/balance', 'account_get_balance', 'billing:read', 'account', '200'],
    ['get /account/ledger', 'account_list_ledger', 'billing:read', 'account', '200'],
    ['get /audit-log', 'account_list_audit_log', '*', 'account', '200'],
    ['get /projects', 'projects_list_projects', 'project:read', 'list', '200'],
    ['get /projects/{project_id}', 'projects_get_project', 'project:read', 'project', '200'],
    ['get /usage', 'usage_get_report', 'billing:read', 'account', '200'],
    ['get /usage/export', 'usage_export', 'billing:read', 'account', '200'],
    ['patch /projects/{project_id}', 'projects_update_project', 'project:update', 'project', '200'],
    ['post /projects', 'projects_create_project', 'project:create', 'account', '201'],
  ]);
});
