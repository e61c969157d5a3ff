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
    '/builds/{build_id}/rollback',
    'apps_rollback_build',
    'apps_rollback_build_by_id',
    '200',
    'app:update',
  ],
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
  ['post', '/domains', 'apps_add_domain', 'apps_add_domain_by_id', '201', 'app:update'],
  ['delete', '/domains/{domain_id}', 'apps_remove_domain', 'apps_remove_domain_by_id', '204', 'app:update'],
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

/** Jobs: as above; their tags differ by address. */
const jobOperations: typeof operations = [
  ['get', '/jobs', 'app_jobs_v1_list_jobs', 'apps_list_jobs_by_id', '200', 'app:read'],
  ['post', '/jobs', 'app_jobs_v1_create_job', 'apps_create_job_by_id', '201', 'app:update'],
  ['get', '/jobs/{job_id}', 'app_jobs_v1_get_job', 'apps_get_job_by_id', '200', 'app:read'],
  ['patch', '/jobs/{job_id}', 'app_jobs_v1_update_job', 'apps_update_job_by_id', '200', 'app:update'],
  ['delete', '/jobs/{job_id}', 'app_jobs_v1_delete_job', 'apps_delete_job_by_id', '204', 'app:update'],
  ['post', '/jobs/{job_id}/run', 'app_jobs_v1_run_job', 'apps_run_job_by_id', '202', 'app:update'],
  ['get', '/job-runs', 'app_jobs_v1_list_runs', 'apps_list_runs_by_id', '200', 'app:read'],
  ['get', '/job-runs/{run_id}', 'app_jobs_v1_get_run', 'apps_get_run_by_id', '200', 'app:read'],
];

/** What belongs to the account: method, path, id, success, permission. */
const accountOperations: [string, string, string, string, string][] = [
  ['get', '/git/connections', 'git_list_connections', '200', 'app:read'],
  ['post', '/git/connections', 'git_create_connection', '201', 'app:create'],
  ['get', '/git/connections/{connection_id}', 'git_get_connection', '200', 'app:read'],
  ['delete', '/git/connections/{connection_id}', 'git_delete_connection', '204', 'app:delete'],
  ['get', '/git/connections/{connection_id}/repositories', 'git_list_repositories', '200', 'app:read'],
  ['post', '/git/authorizations', 'git_create_authorization', '201', 'app:create'],
  ['get', '/git/authorizations/{authorization_id}', 'git_get_authorization', '200', 'app:read'],
];

describe('the contract of apps-builder', () => {
  let paths: Record<string, Record<string, Described>>;

  beforeAll(async () => {
    const document = await contractDocument({ title: 't', description: 'd', definitions: [appsBuilder] });
    paths = document['paths'] as unknown as typeof paths;
  });

  it('has each operation under both addresses with the ids, codes and permissions of the contract', () => {
    const all = [
      ...operations.map((operation) => [...operation, 'apps'] as const),
      ...jobOperations.map((operation) => [...operation, 'app-jobs'] as const),
    ];
    for (const [method, tail, id, flatId, status, permission, tag] of all) {
      for (const [prefix, wanted, tagged] of [
        ['/projects/{project_id}/apps/{app_id}', id, tag],
        ['/apps/{app_id}', flatId, 'apps'],
      ] as const) {
        const found = paths[prefix + tail]?.[method];
        expect([prefix + tail, found?.operationId]).toEqual([prefix + tail, wanted]);
        expect(Object.keys(found!.responses).sort()).toEqual(
          [status, '422', ...Object.keys(commonErrors)].sort(),
        );
        expect(found).toMatchObject({
          tags: [tagged],
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
    expect(paths['/certificates']).toMatchObject({
      get: {
        operationId: 'certificates_list_certificates',
        tags: ['certificates'],
        'x-nebo-permission': ['certificate:read'],
        'x-nebo-resource': 'list',
      },
    });
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
    expect(count).toBe((operations.length + jobOperations.length) * 2 + accountOperations.length + 4);
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
