import { Inject, Injectable } from '@nestjs/common';
import { HealthRegistry, METRICS, RUNTIME, type Runtime } from '@nebo/service-kit';
import type { Metrics } from '@nebo/telemetry';
import { Catalogue, type Route } from '../catalogue/catalogue.js';
import { Breaker, breakerDefaults, breakerNow, type Pass } from './breaker.js';
import { UpstreamError } from './upstream-error.js';

/** Statuses by which a vendor refuses the operator's account: key, money, permission. */
const accountStatuses: ReadonlySet<number> = new Set([401, 402, 403]);
/** Longest time that a vendor may keep a route closed with Retry-After. Seconds. */
const longestWait = 60;
/** An account's trouble is told again after so long, milliseconds. */
const remindAfter = 60_000;

interface AccountTrouble {
  status: number;
  since: Date;
  toldAt: number;
}

/** The name of a route in metrics, log and health: what the operator's file calls it. */
export const routeName = ({ provider, vendorModel }: Route): string => `${provider.name}/${vendorModel}`;

/**
 * The breakers of all routes, and what the operator has to know of them: states as metrics and in the details of
 * `/healthz`, accounts that a vendor refuses as an error in the log with the code `upstream_account_refused`, a metric
 * and in `/healthz` until they work again. None of it makes the service unready: other models go on.
 */
@Injectable()
export class Breakers {
  private readonly byRoute = new Map<string, Breaker>();
  private readonly accounts = new Map<string, AccountTrouble>();
  private readonly failures: number;
  private readonly countRefusal: (labels: { provider: string; status: string }) => void;
  private readonly showRefused: (value: number, labels: { provider: string }) => void;

  constructor(
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'config' | 'log'>,
    @Inject(METRICS) private readonly metrics: Pick<Metrics, 'breaker' | 'counter' | 'gauge'>,
    health: HealthRegistry,
    catalogue: Catalogue,
  ) {
    this.failures = runtime.config.int('NEBO_UPSTREAM_BREAKER_FAILURES', breakerDefaults.failures);
    this.countRefusal = metrics.counter(
      'nebo_upstream_account_refusals_total',
      "Answers by which a provider refuses the operator's account",
      ['provider', 'status'],
    );
    this.showRefused = metrics.gauge(
      'nebo_upstream_account_refused',
      "Does the provider refuse the operator's account? 1 yes, 0 no",
      ['provider'],
    );
    for (const { routes } of catalogue.all) for (const route of routes) this.of(route);
    health.add('upstreams', () => {
      const details = this.details();
      return {
        ok: details.length === 0,
        required: false,
        ...(details.length > 0 ? { detail: details.join('; ') } : {}),
      };
    });
  }

  of(route: Route): Breaker {
    const name = routeName(route);
    let breaker = this.byRoute.get(name);
    if (!breaker) {
      breaker = new Breaker({ ...breakerDefaults, failures: this.failures }, (state) => {
        this.metrics.breaker(name, state);
        if (state === 'half_open') return;
        const words = state === 'open' ? 'upstream is left alone for a while' : 'upstream is used again';
        this.runtime.log[state === 'open' ? 'warn' : 'info']({ upstream: name, breaker: state }, words);
      });
      this.metrics.breaker(name, 'closed');
      this.byRoute.set(name, breaker);
    }
    return breaker;
  }

  /** Notes how an attempt ended; once for each pass. */
  note(route: Route, pass: Pass, error: unknown): void {
    if (error === null) {
      pass.succeeded();
      this.accountWorks(route);
    } else if (!(error instanceof UpstreamError)) {
      pass.forget();
    } else if (error.isAboutRequest) {
      pass.succeeded();
    } else if (accountStatuses.has(error.status ?? 0)) {
      this.accountRefused(route, error.status!);
      // 403 may also be said of one request's content: one client would close the model for all.
      if (error.status === 403) pass.forget();
      else pass.failed(true);
    } else if (error.retryAfter !== undefined) {
      // Perhaps only this request was too much: after a while another one finds out.
      pass.wait(Math.min(error.retryAfter, longestWait));
    } else {
      pass.failed();
    }
  }

  /** Whole seconds until the first of these routes may be tried again, at least 1. */
  secondsUntilOne(routes: readonly Route[]): number {
    const first = Math.min(...routes.map((route) => this.of(route).retryAt));
    return Math.max(1, Math.ceil((first - breakerNow()) / 1_000));
  }

  private accountRefused({ provider }: Route, status: number): void {
    this.countRefusal({ provider: provider.name, status: String(status) });
    const known = this.accounts.get(provider.name);
    const now = new Date();
    const trouble = known ?? { status, since: now, toldAt: 0 };
    if (now.getTime() - trouble.toldAt >= remindAfter || trouble.status !== status) {
      trouble.toldAt = now.getTime();
      this.runtime.log.error(
        { code: 'upstream_account_refused', provider: provider.name, status, since: trouble.since },
        "a provider refuses this installation's account: look at its key and balance there",
      );
    }
    trouble.status = status;
    this.accounts.set(provider.name, trouble);
    this.showRefused(1, { provider: provider.name });
  }

  private accountWorks({ provider }: Route): void {
    if (!this.accounts.delete(provider.name)) return;
    this.showRefused(0, { provider: provider.name });
    this.runtime.log.info({ provider: provider.name }, 'the provider takes this account again');
  }

  /** Without names: the API port shows health to everybody, and which vendor refuses whom is the operator's business. */
  private details(): string[] {
    const closed = [...this.byRoute.values()].filter(({ state }) => state !== 'closed').length;
    return [
      ...(this.accounts.size > 0
        ? [
            `${this.accounts.size} provider(s) refuse this installation's account: upstream_account_refused in the log`,
          ]
        : []),
      ...(closed > 0 ? [`${closed} of ${this.byRoute.size} upstream routes are left alone for a while`] : []),
    ];
  }
}
