import {
  decide,
  type KeyIdentity,
  kindOfParameter,
  type ResourceRef,
  type TableOperation,
  toFilter,
} from '@nebo/contracts';
import { forbidden, notFound } from '@nebo/service-kit';
import type { OwnerCache } from './owner-cache.js';

/**
 * Whether a key may call an operation on the ids of its path, from left to right: what is absent or another account's is
 * 404 with always the same body, what is the account's own but not permitted is 403 naming the action, a child under
 * another parent is 404 (interfaces.md, 2). The resource of a create is its parent.
 * @throws ApiError 404 or 403
 */
export async function checkAccess(
  identity: KeyIdentity,
  operation: TableOperation,
  ids: readonly string[],
  owners: OwnerCache,
): Promise<void> {
  let project: string | null = null;
  let asked = false;
  for (let index = 0; index < ids.length; index += 1) {
    const kind = kindOfParameter[operation.parameters[index]!];
    if (!kind) continue; // A child that its service checks.
    // What stands under another id of the path is checked to lie in it, so that cannot be gone.
    const isLast = index === ids.length - 1;
    const found = owners.find(kind, ids[index]!, isLast ? operation.service : null);
    const owner = found instanceof Promise ? await found : found;
    if (!owner || owner.account_id !== identity.account_id) throw notFound();
    if (project !== null && owner.project_id !== project) throw notFound();
    const id = ids[index]!.toLowerCase();
    if (kind === 'project') project = id;
    if (kind === operation.resource) {
      checkResource(identity, operation, {
        kind,
        id,
        project_id: kind === 'project' ? id : owner.project_id,
        parents: owner.parents,
      });
      asked = true;
    }
  }
  if (asked || operation.resource === 'key' || operation.resource === 'list') return;
  // No id of the path is the resource: it is the account, which only `*` matches.
  checkResource(identity, operation, { kind: 'account', id: identity.account_id, project_id: null });
}

function checkResource(identity: KeyIdentity, operation: TableOperation, target: ResourceRef): void {
  for (const action of operation.permissions) {
    if (decide(identity, action, target)) continue;
    if (operation.isList && target.kind === 'project' && seesSomethingIn(identity, action, target.id))
      continue;
    throw forbidden(action);
  }
}

/** A key for single apps lists them under their project, although the project as a whole is not its own. */
function seesSomethingIn(identity: KeyIdentity, action: string, projectId: string): boolean {
  const kind = action.slice(0, action.indexOf(':'));
  const filter = toFilter(identity, action, kind);
  if (!filter.any || (filter.withinProjects !== null && !filter.withinProjects.includes(projectId)))
    return false;
  return filter.allowIds.length > 0 && !filter.denyProjects.includes(projectId);
}
