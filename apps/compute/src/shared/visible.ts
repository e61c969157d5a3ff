import { idOrNull } from '@nebo/service-kit';
import { type KeyIdentity, toFilter } from '@nebo/contracts';

/** Which rows a key may see, as values for SQL; null as a list means "all". */
export interface Visible {
  allowProjects: string[] | null;
  allowIds: string[];
  denyProjects: string[];
  denyIds: string[];
  withinProjects: string[] | null;
}

/** The rows of a kind that a key may see, or null when there is none. Ids of a policy that are no ids match nothing. */
export function visible(caller: KeyIdentity, action: string, kind: string): Visible | null {
  const filter = toFilter(caller, action, kind);
  if (!filter.any) return null;
  const ids = (texts: readonly string[]) => texts.map(idOrNull).filter((id) => id !== null);
  return {
    allowProjects: filter.allowProjects && ids(filter.allowProjects),
    allowIds: ids(filter.allowIds),
    denyProjects: ids(filter.denyProjects),
    denyIds: ids(filter.denyIds),
    withinProjects: filter.withinProjects && ids(filter.withinProjects),
  };
}
