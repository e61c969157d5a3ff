/**
 * A small contract with the apps operations, written as the real one is (OpenAPI 3.1, x-nebo-permission), for tests
 * that must not change with every new operation.
 */
const ref = (name) => ({ $ref: `#/components/schemas/${name}` });
const json = (schema) => ({ content: { 'application/json': { schema } } });
const text = { type: 'string' };
const nullable = { anyOf: [{ type: 'string' }, { type: 'null' }] };
const query = (name, schema, required = false) => ({ name, in: 'query', required, schema });
const paging = [
  query('limit', { type: 'integer', minimum: 1, maximum: 200, default: 50 }),
  query('offset', { type: 'integer', minimum: 0, default: 0 }),
];
const inPath = (path) =>
  [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({ name, in: 'path', required: true, schema: text }));

function operation(path, operationId, tag, summary, permission, more = {}) {
  const { parameters = [], body, bodyRequired = true, upload, status = '200', answer, stream } = more;
  const content = upload
    ? { [upload]: { schema: { type: 'string', format: 'binary' } } }
    : body && json(body).content;
  return {
    operationId,
    tags: [tag],
    summary,
    'x-nebo-permission': permission,
    'x-nebo-resource': 'app',
    parameters: [...inPath(path), ...parameters],
    ...(content ? { requestBody: { required: bodyRequired, content } } : {}),
    responses: {
      [status]: stream ? { content: { 'text/event-stream': { schema: text } } } : answer ? json(answer) : {},
      422: json(ref('HTTPValidationError')),
    },
  };
}

const record = (properties, required = [], more = {}) => ({ type: 'object', properties, required, ...more });
const page = (name) =>
  record(
    {
      data: { type: 'array', items: ref(name) },
      limit: { type: 'integer' },
      offset: { type: 'integer' },
      count: { type: 'integer' },
    },
    ['data'],
  );

/** @returns {object} the OpenAPI document */
export function contractFixture() {
  const paths = {};
  const add = (method, path, ...rest) => ((paths[path] ??= {})[method] = operation(path, ...rest));
  add('get', '/account', 'account_whoami', 'account', 'Identity of the key', [], {
    answer: ref('WhoAmIResponse'),
  });
  add('get', '/projects', 'projects_list_projects', 'projects', 'List projects', ['project:read'], {
    parameters: paging,
    answer: ref('Page_V1Project_'),
  });
  add(
    'get',
    '/projects/{project_id}',
    'projects_get_project',
    'projects',
    'Read a project',
    ['project:read'],
    { answer: ref('V1Project') },
  );
  add('get', '/apps', 'apps_list_apps_by_account', 'apps', 'List apps', ['app:read'], {
    parameters: [query('project_id', nullable), ...paging],
    answer: ref('Page_V1App_'),
  });
  add(
    'get',
    '/projects/{project_id}/apps',
    'apps_list_apps',
    'apps',
    'List the apps of a project',
    ['app:read'],
    { parameters: paging, answer: ref('Page_V1App_') },
  );
  add('post', '/projects/{project_id}/apps', 'apps_create_app', 'apps', 'Create an app', ['app:create'], {
    body: ref('V1AppCreate'),
    status: '201',
    answer: ref('V1App'),
  });
  const twins = [
    ['/apps/{app_id}', '_by_id'],
    ['/projects/{project_id}/apps/{app_id}', ''],
  ];
  for (const [base, end] of twins) {
    add('get', base, `apps_get_app${end}`, 'apps', 'Read an app', ['app:read'], { answer: ref('V1App') });
    add('patch', base, `apps_update_app${end || '_route'}`, 'apps', 'Change an app', ['app:update'], {
      body: ref('V1AppUpdate'),
      answer: ref('V1App'),
    });
    add('delete', base, `apps_delete_app${end || '_route'}`, 'apps', 'Delete an app', ['app:delete'], {
      status: '204',
    });
    add('post', `${base}/deploy`, `apps_deploy_app${end}`, 'apps', 'Start a build', ['app:update'], {
      body: ref('V1DeployRequest'),
      bodyRequired: false,
      answer: ref('V1AppDeployResult'),
    });
    add(
      'post',
      `${base}/deployments`,
      `apps_create_deployment${end}`,
      'apps',
      'Deploy a folder',
      ['app:update'],
      { upload: 'application/gzip', status: '202', answer: ref('V1AppDeployResult') },
    );
    add('get', `${base}/builds`, `apps_list_builds${end}`, 'apps', 'Build history', ['app:read'], {
      parameters: paging,
      answer: ref('Page_V1Build_'),
    });
    add(
      'get',
      `${base}/builds/{build_id}/logs`,
      `apps_stream_build_logs${end}`,
      'apps',
      'Build log',
      ['app:read'],
      { stream: true },
    );
    add('get', `${base}/env`, `apps_list_env_vars${end}`, 'apps', 'List variables', ['app:read'], {
      parameters: paging,
      answer: ref('Page_V1EnvVar_'),
    });
    add('post', `${base}/env`, `apps_add_env_var${end}`, 'apps', 'Create or set a variable', ['app:update'], {
      body: ref('V1EnvVarCreate'),
      status: '201',
      answer: ref('V1EnvVar'),
    });
  }
  add(
    'post',
    '/floating-ips',
    'floating_ips_create',
    'networking',
    'Order a floating IP',
    ['floating_ip:write'],
    { body: ref('V1FloatingIPCreate'), status: '201', answer: ref('V1FloatingIP') },
  );
  add('get', '/floating-ips/regions', 'floating_ips_regions', 'networking', 'Regions with addresses', [], {
    answer: ref('V1FloatingIP'),
  });
  add(
    'get',
    '/floating-ips/{fip_id}',
    'floating_ips_get',
    'networking',
    'Read a floating IP',
    ['floating_ip:read'],
    { answer: ref('V1FloatingIP') },
  );

  const app = {
    id: text,
    project_id: text,
    name: text,
    status: text,
    replica_count: { type: 'integer' },
    vpc_id: nullable,
  };
  const schemas = {
    WhoAmIResponse: record(
      { account_id: text, key_id: text, policy: { type: 'array', items: ref('V1PolicyStatement') } },
      ['account_id'],
    ),
    V1PolicyStatement: record({
      effect: text,
      actions: { type: 'array', items: text },
      resources: { type: 'array', items: text },
    }),
    V1Project: record({ id: text, name: text, description: nullable }, ['id', 'name']),
    V1App: record(app, ['id', 'name']),
    V1AppCreate: record(
      {
        name: { type: 'string', minLength: 1, maxLength: 255 },
        source_type: { type: 'string', enum: ['git', 'docker_image', 'upload'], default: 'git' },
        app_type: { type: 'string', enum: ['frontend', 'backend', 'function'], default: 'frontend' },
        replica_count: { type: 'integer', minimum: 0, maximum: 10, default: 0 },
        auto_deploy: { type: 'boolean', default: true },
        vpc_id: nullable,
      },
      ['name'],
    ),
    V1AppUpdate: record(
      {
        name: nullable,
        replica_count: { type: ['integer', 'null'], minimum: 0, maximum: 10 },
        vpc_id: { type: 'string', nullable: true },
        readiness_path: nullable,
      },
      [],
      { additionalProperties: false },
    ),
    V1DeployRequest: record({ commit_sha: nullable }),
    V1AppDeployResult: record({ id: text, app_id: text, site_id: text, status: text }, ['id']),
    V1Build: record({ id: text, status: text }, ['id']),
    V1EnvVar: record({ id: text, name: text, value: text, is_secret: { type: 'boolean' } }),
    V1EnvVarCreate: record({ name: text, value: text, is_secret: { type: 'boolean', default: false } }, [
      'name',
      'value',
    ]),
    V1FloatingIP: record({ id: text, address: text }),
    V1FloatingIPCreate: record({ name: text, cluster_id: text, tags: { type: 'array', items: text } }, [
      'cluster_id',
    ]),
    HTTPValidationError: record({}),
    Page_V1Project_: page('V1Project'),
    Page_V1App_: page('V1App'),
    Page_V1Build_: page('V1Build'),
    Page_V1EnvVar_: page('V1EnvVar'),
  };
  return { openapi: '3.1.0', info: { title: 'Nebo', version: '1.0.0' }, paths, components: { schemas } };
}
