import { commonErrors } from '@nebo/contracts';
import { contractDocument } from '@nebo/service-kit';
import { appsBuilder } from './apps-builder.module.js';

interface Described {
  operationId: string;
  tags: string[];
  responses: Record<string, { content?: Record<string, unknown> }>;
  requestBody?: { required?: boolean; content: Record<string, unknown> };
  parameters: { name: string; in: string }[];
  'x-nebo-permission': string[];
  'x-nebo-resource': string;
}

/** Method, path under an app, ids of both addressings, success, permission. The contract's own words, not ours. */
const operations: [string, string, string, string, string, string][] = [
  ['get', '', 'apps_get_app', 'apps_get_app_by_id', '200', 'app:read'],
  ['patch', '', 'apps_update_app_route', 'apps_update_app_by_id', '200', 'app:update'],
  ['delete', '', 'apps_delete_app_route', 'apps_delete_app_by_id', '204', 'app:delete'],
  ['get', '/builds', 'apps_list_builds', 'apps_list_builds_by_id', '200', 'app:read'],
  ['get', '/builds/{build_id}', 'apps_get_build', 'apps_get_build_by_id', '200', 'app:read'],
  [
    'get',
    '/builds/{build_id}/logs',
    'apps_stream_build_logs',
    'apps_stream_build_logs_by_id',
    '200',
    'app:read',
  ],
  ['post', '/builds/{build_id}/cancel', 'apps_cancel_build', 'apps_cancel_build_by_id', '200', 'app:update'],
  [
    'post',
    '/builds/{build_id}/rebuild',
    'apps_rebuild_build',
    'apps_rebuild_build_by_id',
    '200',
    'app:update',
  ],
  ['get', '/deliveries', 'apps_list_deliveries', 'apps_list_deliveries_by_id', '200', 'app:read'],
  ['post', '/deploy', 'apps_deploy_app', 'apps_deploy_app_by_id', '200', 'app:update'],
  ['post', '/deployments', 'apps_create_deployment', 'apps_create_deployment_by_id', '202', 'app:update'],
  ['get', '/domains', 'apps_list_domains', 'apps_list_domains_by_id', '200', 'app:read'],
  ['get', '/env', 'apps_list_env_vars', 'apps_list_env_vars_by_id', '200', 'app:read'],
  ['post', '/env', 'apps_add_env_var', 'apps_add_env_var_by_id', '201', 'app:update'],
  [
    'delete',
    '/env/{env_var_id}',
    'apps_delete_env_var_route',
    'apps_delete_env_var_by_id',
    '204',
    'app:update',
  ],
  ['get', '/events', 'apps_stream_deploy_events', 'apps_stream_deploy_events_by_id', '200', 'app:read'],
  ['get', '/logs', 'apps_stream_runtime_logs', 'apps_stream_runtime_logs_by_id', '200', 'app:read'],
];

/** What belongs to the account: method, path, id, success, permission. */
const accountOperations: [string, string, string, string, string][] = [
  ['get', '/git/connections', 'git_list_connections', '200', 'app:read'],
  ['post', '/git/connections', 'git_create_connection', '201', 'app:create'],
  ['get', '/git/connections/{connection_id}', 'git_get_connection', '200', 'app:read'],
  ['delete', '/git/connections/{connection_id}', 'git_delete_connection', '204', 'app:delete'],
  ['get', '/git/connections/{connection_id}/repositories', 'git_list_repositories', '200', 'app:read'],
];

describe('the contract of apps-builder', () => {
  let paths: Record<string, Record<string, Described>>;

  beforeAll(async () => {
    const document = await contractDocument({ title: 't', description: 'd', definitions: [appsBuilder] });
    paths = document['paths'] as unknown as typeof paths;
  });

  it('has each operation under both addresses with the ids, codes and permissions of the contract', () => {
    for (const [method, tail, id, flatId, status, permission] of operations) {
      for (const [prefix, wanted] of [
        ['/projects/{project_id}/apps/{app_id}', id],
        ['/apps/{app_id}', flatId],
      ] as const) {
        const found = paths[prefix + tail]?.[method];
        expect([prefix + tail, found?.operationId]).toEqual([prefix + tail, wanted]);
        expect(Object.keys(found!.responses).sort()).toEqual(
          [status, '422', ...Object.keys(commonErrors)].sort(),
        );
        expect(found).toMatchObject({
          tags: ['apps'],
          'x-nebo-permission': [permission],
          'x-nebo-resource': 'app',
        });
      }
    }
  });

  it('has the lists and the create, and nothing else', () => {
    expect(paths['/projects/{project_id}/apps']).toMatchObject({
      get: { operationId: 'apps_list_apps', 'x-nebo-resource': 'project' },
      post: {
        operationId: 'apps_create_app',
        'x-nebo-permission': ['app:create'],
        'x-nebo-resource': 'project',
      },
    });
    expect(paths['/apps']).toMatchObject({
      get: { operationId: 'apps_list_apps_by_account', 'x-nebo-resource': 'list' },
    });
    expect(paths['/apps']!['get']!.parameters.map(({ name }) => name).sort()).toEqual([
      'limit',
      'offset',
      'project_id',
    ]);
    for (const [method, path, operationId, status, permission] of accountOperations) {
      const found = paths[path]?.[method];
      expect(found).toMatchObject({
        operationId,
        tags: ['git'],
        'x-nebo-permission': [permission],
        'x-nebo-resource': 'account',
      });
      expect(Object.keys(found!.responses)).toContain(status);
    }
    const count = Object.values(paths).reduce((sum, item) => sum + Object.keys(item).length, 0);
    expect(count).toBe(operations.length * 2 + accountOperations.length + 3);
  });

  it('says what is no JSON: the folder and the streams; and which body may be absent', () => {
    expect(paths['/apps/{app_id}/deployments']!['post']!.requestBody).toMatchObject({ required: true });
    expect(Object.keys(paths['/apps/{app_id}/deployments']!['post']!.requestBody!.content)).toEqual([
      'application/gzip',
    ]);
    expect(paths['/apps/{app_id}/deploy']!['post']!.requestBody?.required ?? false).toBe(false);
    for (const tail of ['builds/{build_id}/logs', 'events', 'logs']) {
      expect(Object.keys(paths[`/apps/{app_id}/${tail}`]!['get']!.responses['200']!.content!)).toEqual([
        'text/event-stream',
      ]);
    }
  });
});
