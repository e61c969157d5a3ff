/**
 * `GET /internal/v1/projects/{id}/usage` at a service whose things lie in projects: what would be lost with the project, so
 * that one that is not empty is not deleted.
 */
export interface ProjectUsage {
  /** Things of this service in the project. */
  count: number;
}
