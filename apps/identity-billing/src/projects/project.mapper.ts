import { type PolicyFilter, type V1Project } from '@nebo/contracts';
import { asUuid } from '../database/ids.js';
import { type Prisma, type Project } from '../generated/prisma/client.js';

/** A row as record. */
export function projectRecord(row: Project): V1Project {
  return { id: row.id, name: row.name, description: row.description, emoji: row.emoji };
}

/** The form in which names are compared: composed, without case. */
export const nameKey = (name: string): string => name.normalize('NFC').toLowerCase();

/** A policy's filter as a condition on projects; null when nothing is visible. For a project its own id is the project. */
export function visibleProjects(filter: PolicyFilter): Prisma.ProjectWhereInput | null {
  if (!filter.any) return null;
  // What is no uuid is no project; PostgreSQL would refuse to compare it.
  const ids = (list: readonly string[]) => list.map(asUuid).filter((id): id is string => id !== null);
  const conditions: Prisma.ProjectWhereInput[] = [
    { id: { notIn: ids([...filter.denyIds, ...filter.denyProjects]) } },
  ];
  if (filter.allowProjects !== null)
    conditions.push({ id: { in: ids([...filter.allowProjects, ...filter.allowIds]) } });
  if (filter.withinProjects !== null) conditions.push({ id: { in: ids(filter.withinProjects) } });
  return { AND: conditions };
}
