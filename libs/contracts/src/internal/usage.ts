/**
 * `GET /internal/v1/projects/{id}/usage` at a service whose things lie in projects: what would be lost with the project, so
 * that one that is not empty is not deleted. What is just being made there is waited for and counted.
 */
export interface ProjectUsage {
  /** Things of this service in the project. */
  count: number;
}
