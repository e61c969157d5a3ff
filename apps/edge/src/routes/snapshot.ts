import { type Route } from '@nebo/contracts';
import { type Router } from '@nebo/routing';
import { wildcardOf } from '../http/host.js';
import { type Site } from '../static/site.js';

export interface Replica {
  id: string;
  host: string;
  port: number;
}

/** A route as it is served: with its files at hand, or its replicas and whose turn it is. */
export type LiveRoute =
  | { kind: 'static'; route: Route; site: Site; router: Router | null }
  | {
      kind: 'replicas';
      route: Route;
      router: Router | null;
      replicas: readonly Replica[];
      /** The on-demand replica that there is instead; null: none is. */
      wake: { id: string } | null;
      turn: { next: number };
    }
  | { kind: 'none'; route: Route; reason: string };

/** All that is served at one moment. Never changes: a request that holds one sees one version of everything. */
export class Snapshot {
  constructor(
    /** Version of the routes answer that this came from; null before the first. */
    readonly version: string | null,
    private readonly hosts: ReadonlyMap<string, LiveRoute>,
  ) {}

  /** The route of a normalised host name: by name, or by the wildcard of its parent. */
  find(host: string): LiveRoute | undefined {
    const exact = this.hosts.get(host);
    if (exact) return exact;
    const wildcard = wildcardOf(host);
    return wildcard === null ? undefined : this.hosts.get(wildcard);
  }

  /** All routes that are served. */
  *routes(): Iterable<Route> {
    for (const { route } of this.hosts.values()) yield route;
  }

  get size(): number {
    return this.hosts.size;
  }
}
