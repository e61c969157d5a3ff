import type { KeyIdentity } from './identity.js';
import type { PolicyStatement } from './identity.js';
import { checkPolicy, decide, type ResourceRef, toFilter } from './policy.js';

const project = '11111111-1111-4111-8111-111111111111';
const otherProject = '22222222-2222-4222-8222-222222222222';
const appId = '33333333-3333-4333-8333-333333333333';
const allow = (actions: string, resources: string): PolicyStatement => ({
  effect: 'allow',
  actions: actions.split(' '),
  resources: resources.split(' '),
});
const deny = (actions: string, resources: string): PolicyStatement => ({
  ...allow(actions, resources),
  effect: 'deny',
});
const key = (policy: PolicyStatement[], more: Partial<KeyIdentity> = {}): KeyIdentity => ({
  kind: 'key',
  account_id: 'a',
  key_id: 'k',
  policy,
  project_ids: null,
  role: 'owner',
  ...more,
});
const app: ResourceRef = { kind: 'app', id: appId, project_id: project };
const vpc: ResourceRef = { kind: 'vpc', id: appId, project_id: null };
const account: ResourceRef = { kind: 'account', id: 'a', project_id: null };

/** One table for both functions: what decides about one thing must filter the same thing in a list. */
const table: [string, PolicyStatement[], Partial<KeyIdentity>, string, ResourceRef, boolean][] = [
  ['everything', [allow('*', '*')], {}, 'app:delete', app, true],
  ['nothing said', [allow('vm:read', '*')], {}, 'app:read', app, false],
  ['kind wildcard', [allow('app:*', '*')], {}, 'app:update', app, true],
  ['wildcard of another kind', [allow('ap:*', '*')], {}, 'app:update', app, false],
  ['by project', [allow('app:read', `project:${project}`)], {}, 'app:read', app, true],
  ['by another project', [allow('app:read', `project:${otherProject}`)], {}, 'app:read', app, false],
  ['by id', [allow('app:read', `app:${appId}`)], {}, 'app:read', app, true],
  ['by id in upper case', [allow('app:read', `app:${appId.toUpperCase()}`)], {}, 'app:read', app, true],
  ['by another id', [allow('app:read', `app:${project}`)], {}, 'app:read', app, false],
  ['every app', [allow('app:read', 'app:*')], {}, 'app:read', app, true],
  [
    'deny wins over allow, whatever the order',
    [deny('app:read', `app:${appId}`), allow('*', '*')],
    {},
    'app:read',
    app,
    false,
  ],
  ['deny of a project', [allow('*', '*'), deny('app:*', `project:${project}`)], {}, 'app:read', app, false],
  [
    'deny of another project',
    [allow('*', '*'), deny('app:*', `project:${otherProject}`)],
    {},
    'app:read',
    app,
    true,
  ],
  ['deny of another action', [allow('*', '*'), deny('app:delete', '*')], {}, 'app:read', app, true],
  ['allow-list with the project', [allow('*', '*')], { project_ids: [project] }, 'app:read', app, true],
  [
    'allow-list without the project',
    [allow('*', '*')],
    { project_ids: [otherProject] },
    'app:read',
    app,
    false,
  ],
  [
    'allow-list leaves reading of what has no project',
    [allow('*', '*')],
    { project_ids: [project] },
    'vpc:read',
    vpc,
    true,
  ],
  ['reader reads', [allow('*', '*')], { role: 'reader' }, 'app:read', app, true],
  ['a role that allows nothing', [allow('*', '*')], { role: 'reader' }, 'app:update', app, false],
];

describe('policy', () => {
  it.each(table)('decide: %s', (_name, policy, more, action, target, expected) => {
    expect(decide(key(policy, more), action, target)).toBe(expected);
  });

  it.each(table)('toFilter agrees: %s', (_name, policy, more, action, target, expected) => {
    const filter = toFilter(key(policy, more), action, target.kind);
    const { id, project_id: inProject } = target;
    const visible =
      filter.any &&
      (filter.allowProjects === null ||
        (inProject !== null && filter.allowProjects.includes(inProject)) ||
        filter.allowIds.includes(id)) &&
      !filter.denyIds.includes(id) &&
      !(inProject !== null && filter.denyProjects.includes(inProject)) &&
      (filter.withinProjects === null || (inProject !== null && filter.withinProjects.includes(inProject)));
    expect(visible).toBe(expected);
  });

  it('an allow-list never leaves writing of what has no project, nor the balance', () => {
    const narrowed = key([allow('*', '*')], { project_ids: [project] });
    expect(decide(narrowed, 'vpc:write', vpc)).toBe(false);
    expect(decide(narrowed, 'billing:read', account)).toBe(false);
    expect(decide(key([allow('*', '*')]), 'billing:read', account)).toBe(true);
  });

  it('only the owner’s keys read the balance; only `*` matches the account', () => {
    expect(decide(key([allow('*', '*')], { role: 'admin' }), 'billing:read', account)).toBe(false);
    expect(decide(key([allow('project:create', `project:${project}`)]), 'project:create', account)).toBe(
      false,
    );
  });

  it.each([
    ['no statements', []],
    ['an unknown action', [allow('app:fly', '*')]],
    ['an unknown kind', [allow('spaceship:read', '*')]],
    ['a malformed resource', [allow('app:read', 'app:123')]],
    ['too many statements', Array.from({ length: 51 }, () => allow('app:read', '*'))],
    [
      'too many bytes',
      Array.from({ length: 40 }, () => allow('app:read', Array(6).fill(`project:${project}`).join(' '))),
    ],
    ['an effect that is none', [{ ...allow('app:read', '*'), effect: 'maybe' as never }]],
  ])('checkPolicy refuses %s', (_name, policy) => {
    expect(() => checkPolicy(policy)).toThrow(RangeError);
  });
});
