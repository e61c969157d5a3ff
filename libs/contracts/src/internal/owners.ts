/**
 * `GET /internal/v1/owners/{kind}/{id}` at the service that owns the kind. Immutable, so it may be kept. A project takes
 * `?settled=true` from who is about to put something into it: 409 `project_busy` while it is being deleted.
 */
export interface Owner {
  account_id: string;
  project_id: string | null;
  /** Further ancestors, `kind:id`. */
  parents: string[];
  /** Where it lies, of a kind that lies in one region; absent of others. */
  region_id?: string;
}

/** Which service owns a kind that stands in paths. */
export const ownerServices: Readonly<Record<string, string>> = {
  project: 'identity-billing',
  app: 'apps-builder',
  vm: 'compute',
  ssh_key: 'compute',
  vpc: 'networking',
  floating_ip: 'networking',
  dns_zone: 'dns',
};

/** The kind of a path parameter whose owner the gateway checks; other parameters are the service's own children. */
export const kindOfParameter: Readonly<Record<string, string>> = {
  project_id: 'project',
  app_id: 'app',
  vm_id: 'vm',
  key_id: 'ssh_key',
  vpc_id: 'vpc',
  fip_id: 'floating_ip',
  zone_id: 'dns_zone',
};
