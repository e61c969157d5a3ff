import { type Route, type RoutesAnswer } from '@nebo/contracts';
import { Router } from '@nebo/routing';
import { type Site } from '../static/site.js';
import { type LiveRoute, Snapshot } from './snapshot.js';

/** What is kept on disk: what is wanted, and what is served instead while an artifact is still under way. */
export interface StoredRoutes {
  format: 1;
  version: string;
  routes: Route[];
  /** Routes that are live although newer ones are wanted for their hosts. */
  serving: Route[];
}

export interface PendingRoute {
  host: string;
  app_id: string;
  artifact_sha256: string;
  artifact_bytes: number;
}

/**
 * What is wanted and what is live. A static route goes live only when its files are at hand; until then its host keeps
 * the route that it has. Every change makes a new snapshot, published by one assignment.
 */
export class RouteTable {
  private wanted = new Map<string, Route>();
  private live = new Map<string, LiveRoute>();
  private waiting = new Set<string>();
  private version: string | null = null;
  private published: Snapshot | null = null;
  /** Made anew after each change, when it is asked for. */
  private needed: Set<string> | null = null;

  /** @param siteFor the opened files of an artifact, or undefined while it is not on disk */
  constructor(private readonly siteFor: (sha256: string) => Site | undefined) {}

  /** What requests see; null until anything was ever known. */
  get current(): Snapshot | null {
    return this.published;
  }

  /** Takes up what an earlier process left on disk. Artifacts must have been opened before. */
  restore(stored: StoredRoutes): void {
    this.version = stored.version;
    for (const route of stored.serving) this.bringLive(route);
    for (const route of stored.routes) this.wanted.set(route.host, route);
    for (const host of this.wanted.keys()) this.promote(host);
    this.publish();
  }

  /**
   * Takes an answer of the control plane.
   * @returns the routes that went live by it
   */
  apply(answer: RoutesAnswer): Route[] {
    const touched = new Set<string>(answer.removed);
    if (answer.full) {
      for (const host of this.wanted.keys()) touched.add(host);
      for (const host of this.live.keys()) touched.add(host);
      this.wanted = new Map();
    }
    for (const host of answer.removed) this.wanted.delete(host);
    for (const route of answer.routes) {
      this.wanted.set(route.host, route);
      touched.add(route.host);
    }
    this.version = answer.version;
    this.live = new Map(this.live);
    const applied: Route[] = [];
    for (const host of touched) {
      const route = this.promote(host);
      if (route) applied.push(route);
    }
    this.publish();
    return applied;
  }

  /**
   * Looks again at the hosts that wait for an artifact.
   * @returns the routes that went live
   */
  settle(): Route[] {
    const applied: Route[] = [];
    if (this.waiting.size === 0) return applied;
    this.live = new Map(this.live);
    for (const host of [...this.waiting]) {
      const route = this.promote(host);
      if (route) applied.push(route);
    }
    this.publish();
    return applied;
  }

  /** Routes that wait for their artifact. */
  pending(): PendingRoute[] {
    const list: PendingRoute[] = [];
    for (const host of this.waiting) {
      const route = this.wanted.get(host);
      if (route?.target.kind !== 'static') continue;
      const { artifact_sha256, artifact_bytes } = route.target;
      list.push({ host, app_id: route.app_id, artifact_sha256, artifact_bytes });
    }
    return list;
  }

  /** Whether a wanted or a live route needs an artifact. */
  needs(sha256: string): boolean {
    if (!this.needed) {
      this.needed = new Set();
      for (const { target } of this.wanted.values())
        if (target.kind === 'static') this.needed.add(target.artifact_sha256);
      for (const live of this.live.values()) if (live.kind === 'static') this.needed.add(live.site.sha256);
    }
    return this.needed.has(sha256);
  }

  /** The form for the disk; null before anything is known. */
  stored(): StoredRoutes | null {
    if (this.version === null) return null;
    const serving: Route[] = [];
    for (const host of this.waiting) {
      const live = this.live.get(host);
      if (live && live.route !== this.wanted.get(host)) serving.push(live.route);
    }
    return { format: 1, version: this.version, routes: [...this.wanted.values()], serving };
  }

  /** Makes the wanted route of a host live if it can be; returns it if it is. */
  private promote(host: string): Route | null {
    const route = this.wanted.get(host);
    if (!route) {
      this.live.delete(host);
      this.waiting.delete(host);
      return null;
    }
    if (this.bringLive(route)) {
      this.waiting.delete(host);
      return route;
    }
    this.waiting.add(host);
    const old = this.live.get(host);
    // The old route goes on serving, but never one account's files under a name that now belongs to another.
    if (!old || old.route.account_id !== route.account_id) {
      this.live.set(host, { kind: 'none', route, reason: 'The site is being prepared.' });
    }
    return null;
  }

  private bringLive(route: Route): boolean {
    const old = this.live.get(route.host);
    switch (route.target.kind) {
      case 'static': {
        const site = this.siteFor(route.target.artifact_sha256);
        if (!site) return false;
        this.live.set(route.host, { kind: 'static', route, site, router: routerOf(route) });
        return true;
      }
      case 'replicas': {
        const turn = old?.kind === 'replicas' ? old.turn : { next: 0 };
        const wake = route.target.wake ?? null;
        if (route.target.replicas.length === 0 && wake === null) {
          this.live.set(route.host, { kind: 'none', route, reason: 'No instance is running.' });
        } else {
          this.live.set(route.host, {
            kind: 'replicas',
            route,
            router: routerOf(route),
            replicas: route.target.replicas,
            wake,
            turn,
          });
        }
        return true;
      }
      case 'none':
        this.live.set(route.host, { kind: 'none', route, reason: route.target.reason });
        return true;
    }
  }

  private publish(): void {
    this.needed = null;
    this.published = new Snapshot(this.version, this.live);
  }
}

const routerOf = ({ routing }: Route): Router | null => (routing ? new Router(routing) : null);
