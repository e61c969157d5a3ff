import type { DocumentedContract } from '../src/docs/docs-page.js';

const operation = (
  operationId: string,
  service: string,
  permission: string[],
  resource: string,
  answer?: string,
) => ({
  operationId,
  summary: operationId,
  tags: ['test'],
  responses: {
    '200': {
      content: { 'application/json': { schema: { $ref: `#/components/schemas/${answer ?? 'Thing'}` } } },
    },
  },
  'x-nebo-service': service,
  'x-nebo-permission': permission,
  'x-nebo-resource': resource,
});

const stream = (operationId: string, service: string, permission: string[], resource: string) => ({
  ...operation(operationId, service, permission, resource),
  responses: { '200': { content: { 'text/event-stream': {} } } },
});

/** A small contract with one operation of each sort. */
export const testContract = {
  info: { title: 'Test', version: '1.0.0' },
  paths: {
    '/account': { get: operation('whoami', 'identity-billing', [], 'key') },
    '/account/balance': { get: operation('balance', 'identity-billing', ['billing:read'], 'account') },
    '/projects': {
      get: operation('projects', 'identity-billing', ['project:read'], 'list', 'Page_V1Project_'),
    },
    '/projects/{project_id}': { get: operation('project', 'identity-billing', ['project:read'], 'project') },
    '/projects/{project_id}/apps': {
      get: operation('list_apps', 'apps-builder', ['app:read'], 'project', 'Page_V1App_'),
      post: operation('create_app', 'apps-builder', ['app:create'], 'project'),
    },
    '/projects/{project_id}/apps/{app_id}': {
      get: operation('get_app', 'apps-builder', ['app:read'], 'app'),
    },
    '/apps': { get: operation('apps', 'apps-builder', ['app:read'], 'list', 'Page_V1App_') },
    '/apps/{app_id}': {
      get: operation('get_app_by_id', 'apps-builder', ['app:read'], 'app'),
      delete: operation('delete_app_by_id', 'apps-builder', ['app:delete'], 'app'),
    },
    '/apps/{app_id}/deployments': { post: operation('deployments', 'apps-builder', ['app:update'], 'app') },
    '/apps/{app_id}/builds/{build_id}/logs': { get: stream('logs', 'apps-builder', ['app:read'], 'app') },
  },
} as unknown as DocumentedContract;

export const testInferenceContract = {
  info: { title: 'Test inference', version: '1.0.0' },
  paths: {
    '/models': { get: { ...operation('models', 'inference-router', [], 'key'), 'x-nebo-public': true } },
    '/chat/completions': { post: operation('chat', 'inference-router', [], 'key') },
    '/messages': { post: operation('messages', 'inference-router', [], 'key') },
    '/responses': { post: operation('responses', 'inference-router', [], 'key') },
  },
} as unknown as DocumentedContract;
