import type { KeyIdentity, PolicyStatement, Role } from './identity.js';

/** A thing that a request touches, with all that contains it. */
export interface ResourceRef {
  kind: string;
  id: string;
  project_id: string | null;
  /** Further ancestors in the form `kind:id`. */
  parents?: readonly string[];
}

/** Every action that exists, by kind (interfaces.md, 3). */
export const actionsByKind: Readonly<Record<string, readonly string[]>> = {
  app: ['read', 'create', 'update', 'delete'],
  vm: ['read', 'create', 'update', 'delete'],
  project: ['read', 'create', 'update', 'delete'],
  vpc: ['read', 'write'],
  floating_ip: ['read', 'write'],
  dns_zone: ['read', 'write'],
  ssh_key: ['read', 'write'],
  certificate: ['read'],
  billing: ['read'],
};

/** Most statements and bytes of a policy, checked at minting (interfaces.md, 3). */
export const policyLimits = { statements: 50, bytes: 8 * 1024 } as const;

const writes = /:(create|update|delete|write)$/;

/** What the issuer's role leaves of a key's rights, live at each call. */
export function roleAllows(role: Role, action: string): boolean {
  if (action === 'billing:read') return role === 'owner';
  switch (role) {
    case 'owner':
    case 'admin':
      return true;
    case 'developer':
      return !/^project:(create|update|delete)$/.test(action);
    case 'billing':
    case 'reader':
      return !writes.test(action);
  }
}

/** True when a pattern of a statement covers an action. */
export function actionMatches(pattern: string, action: string): boolean {
  if (pattern === '*' || pattern === action) return true;
  return pattern.endsWith(':*') && action.startsWith(pattern.slice(0, -1));
}

function resourceMatches(pattern: string, target: ResourceRef): boolean {
  const wanted = pattern.toLowerCase();
  if (wanted === '*' || wanted === `${target.kind}:${target.id}` || wanted === `${target.kind}:*`)
    return true;
  if (target.project_id !== null && (wanted === `project:${target.project_id}` || wanted === 'project:*'))
    return true;
  return target.parents?.includes(wanted) ?? false;
}

/** Kinds that belong to no project; under a project allow-list they can only be read (interfaces.md, 3). */
const accountKinds = new Set(['vpc', 'floating_ip', 'ssh_key', 'dns_zone', 'certificate']);

function allowListAllows(identity: KeyIdentity, action: string, target: ResourceRef): boolean {
  if (identity.project_ids === null) return true;
  const project = target.kind === 'project' ? target.id : target.project_id;
  if (project !== null && project !== '') return identity.project_ids.includes(project);
  if (action === 'billing:read') return false;
  return accountKinds.has(action.slice(0, action.indexOf(':'))) && !writes.test(action);
}

/**
 * Whether a key may do `action` on one resource of its own account. Deny wins over allow; the issuer's role and the
 * project allow-list narrow. The resource of a create is its parent; `account` is matched by `*` only.
 */
export function decide(identity: KeyIdentity, action: string, target: ResourceRef): boolean {
  if (!roleAllows(identity.role, action) || !allowListAllows(identity, action, target)) return false;
  let allowed = false;
  for (const statement of identity.policy) {
    if (!statement.actions.some((pattern) => actionMatches(pattern, action))) continue;
    if (!statement.resources.some((pattern) => resourceMatches(pattern, target))) continue;
    if (statement.effect === 'deny') return false;
    allowed = true;
  }
  return allowed;
}

/** Which rows of one kind a key may see; each list is a set of ids, null means "all". */
export interface PolicyFilter {
  /** False: nothing at all is visible. */
  any: boolean;
  /** Rows outside these are hidden, unless `allowIds` has them; null: every row is allowed. */
  allowProjects: string[] | null;
  allowIds: string[];
  denyProjects: string[];
  denyIds: string[];
  /** Project allow-list: rows outside these projects are hidden whatever the policy says; null: no allow-list. */
  withinProjects: string[] | null;
}

/**
 * The same decision as `decide`, as a filter for a list of `kind`. For kinds that lie in projects a row has a project; for
 * `project` itself the id is the project.
 */
export function toFilter(identity: KeyIdentity, action: string, kind: string): PolicyFilter {
  const nothing: PolicyFilter = {
    any: false,
    allowProjects: [],
    allowIds: [],
    denyProjects: [],
    denyIds: [],
    withinProjects: [],
  };
  if (!roleAllows(identity.role, action)) return nothing;
  const outsideProjects = accountKinds.has(kind);
  const filter: PolicyFilter = {
    any: true,
    allowProjects: [],
    allowIds: [],
    denyProjects: [],
    denyIds: [],
    withinProjects: outsideProjects ? null : identity.project_ids,
  };
  for (const statement of identity.policy) {
    if (!statement.actions.some((pattern) => actionMatches(pattern, action))) continue;
    const deny = statement.effect === 'deny';
    for (const resource of statement.resources.map((pattern) => pattern.toLowerCase())) {
      const [of, id] = resource.split(':', 2) as [string, string | undefined];
      const everything =
        resource === '*' || (id === '*' && (of === kind || (of === 'project' && !outsideProjects)));
      if (everything && deny) return nothing;
      if (everything) filter.allowProjects = null;
      else if (of === kind && id) (deny ? filter.denyIds : filter.allowIds).push(id);
      else if (of === 'project' && id && !outsideProjects) {
        if (deny) filter.denyProjects.push(id);
        else filter.allowProjects?.push(id);
      }
    }
  }
  if (filter.allowProjects?.length === 0 && filter.allowIds.length === 0) return nothing;
  return filter;
}

/**
 * Checks a policy at minting.
 * @throws RangeError with a sentence for the operator or the panel
 */
export function checkPolicy(statements: readonly PolicyStatement[]): void {
  if (statements.length === 0) throw new RangeError('a policy needs at least one statement');
  if (statements.length > policyLimits.statements) {
    throw new RangeError(`a policy has at most ${policyLimits.statements} statements`);
  }
  if (Buffer.byteLength(JSON.stringify(statements)) > policyLimits.bytes) {
    throw new RangeError(`a policy has at most ${policyLimits.bytes} bytes`);
  }
  for (const { effect, actions, resources } of statements) {
    if (effect !== 'allow' && effect !== 'deny')
      throw new RangeError(`effect is "allow" or "deny", not "${String(effect)}"`);
    if (!actions?.length || !resources?.length)
      throw new RangeError('a statement needs actions and resources');
    for (const action of actions) {
      const [kind, verb] = action.split(':', 2) as [string, string | undefined];
      const verbs = actionsByKind[kind];
      if (action !== '*' && !(verbs && (verb === '*' || verbs.includes(verb ?? '')))) {
        throw new RangeError(`there is no action "${action}"; actions look like app:read, vm:* or *`);
      }
    }
    for (const resource of resources) {
      if (resource !== '*' && !/^[a-z_]+:(\*|[0-9a-f-]{36})$/i.test(resource)) {
        throw new RangeError(
          `"${resource}" is not a resource; resources look like *, project:<id> or app:<id>`,
        );
      }
    }
  }
}
