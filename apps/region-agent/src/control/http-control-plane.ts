import { type Readable } from 'node:stream';
import { Agent, request, type Dispatcher } from 'undici';
import {
  type GoneAppsAnswer,
  type InventoryPart,
  type InventoryWanted,
  type LogBatch,
  type Observed,
  type RegionCapacity,
  type UsageReport,
  type UsageTaken,
  type WantedAnswer,
} from '@nebo/contracts';
import {
  ControlPlaneError,
  Superseded,
  type AgentSession,
  type ControlPlane,
  type ServicePlane,
} from './control-plane.js';

export interface HttpControlPlaneOptions {
  /** The API's base, e.g. `http://127.0.0.1:4000`. */
  url: string;
  /** The region token. */
  token: string;
  /** The service whose kinds are made here; its name is part of the path. Default `apps-builder`. */
  service?: string;
}

/** The control plane over HTTP: `/agent/v1/session` and `/agent/v1/<service>/…` with the region token. */
export class HttpControlPlane implements ControlPlane {
  private readonly agent = new Agent({
    connect: { timeout: 5_000 },
    keepAliveTimeout: 20_000,
    pipelining: 1,
  });
  private readonly base: string;
  private readonly service: string;
  private epoch: number | null = null;

  constructor(private readonly options: HttpControlPlaneOptions) {
    this.base = options.url.replace(/\/+$/, '');
    this.service = `/agent/v1/${options.service ?? 'apps-builder'}`;
  }

  async openSession(capacity: RegionCapacity | null, signal: AbortSignal): Promise<AgentSession> {
    const answer = await this.call('POST', '/agent/v1/session', {
      signal,
      body: JSON.stringify({ capacity }),
      json: true,
      seconds: 15,
    });
    const session = (await answer.body.json()) as AgentSession;
    this.epoch = session.epoch;
    return session;
  }

  wanted(
    since: string | null,
    waitSeconds: number,
    signal: AbortSignal,
    after: string | null = null,
  ): Promise<WantedAnswer> {
    return this.wantedOf(this.service, since, waitSeconds, signal, after);
  }

  observed(items: Observed[], signal: AbortSignal): Promise<void> {
    return this.observedOf(this.service, items, signal);
  }

  of(service: string): ServicePlane {
    const base = `/agent/v1/${service}`;
    return {
      wanted: (since, waitSeconds, signal, after = null) =>
        this.wantedOf(base, since, waitSeconds, signal, after),
      observed: (items, signal) => this.observedOf(base, items, signal),
      getBlob: (sha256, signal) => this.getBlobOf(base, sha256, signal),
      putBlob: (sha256, bytes, source, signal) => this.putBlobOf(base, sha256, bytes, source, signal),
    };
  }

  private async wantedOf(
    service: string,
    since: string | null,
    waitSeconds: number,
    signal: AbortSignal,
    after: string | null,
  ): Promise<WantedAnswer> {
    const query = new URLSearchParams({ wait: String(waitSeconds) });
    if (since !== null) query.set('since', since);
    if (after !== null) query.set('after', after);
    // A control plane that vanished without a word must not hold the agent for ever.
    const answer = await this.call('GET', `${service}/wanted?${query}`, {
      signal,
      seconds: waitSeconds + 15,
    });
    return (await answer.body.json()) as WantedAnswer;
  }

  private async observedOf(service: string, items: Observed[], signal: AbortSignal): Promise<void> {
    const body = JSON.stringify({ items });
    await this.done('POST', `${service}/observed`, { signal, body, json: true, seconds: 15 });
  }

  async log(stream: string, batch: LogBatch, signal: AbortSignal): Promise<void> {
    const path = `${this.service}/log/${encodeURIComponent(stream)}`;
    await this.done('POST', path, { signal, body: JSON.stringify(batch), json: true, seconds: 15 });
  }

  async goneApps(appIds: readonly string[], signal: AbortSignal): Promise<string[]> {
    const body = JSON.stringify({ app_ids: appIds });
    const path = `${this.service}/gone-apps`;
    const answer = await this.call('POST', path, { signal, body, json: true, seconds: 15 });
    return ((await answer.body.json()) as GoneAppsAnswer).gone;
  }

  async usage(report: UsageReport, signal: AbortSignal): Promise<UsageTaken> {
    const body = JSON.stringify(report);
    const answer = await this.call('POST', `${this.service}/usage`, {
      signal,
      body,
      json: true,
      seconds: 15,
    });
    return (await answer.body.json()) as UsageTaken;
  }

  async inventoryWanted(waitSeconds: number, signal: AbortSignal): Promise<InventoryWanted> {
    const path = `/agent/v1/compute/inventory?wait=${waitSeconds}`;
    const answer = await this.call('GET', path, { signal, seconds: waitSeconds + 15 });
    return (await answer.body.json()) as InventoryWanted;
  }

  async tellInventory(part: InventoryPart, signal: AbortSignal): Promise<void> {
    const body = JSON.stringify(part);
    await this.done('POST', '/agent/v1/compute/inventory', { signal, body, json: true, seconds: 15 });
  }

  getBlob(sha256: string, signal: AbortSignal): Promise<Readable> {
    return this.getBlobOf(this.service, sha256, signal);
  }

  putBlob(sha256: string, bytes: number, source: Readable, signal: AbortSignal): Promise<void> {
    return this.putBlobOf(this.service, sha256, bytes, source, signal);
  }

  private async getBlobOf(service: string, sha256: string, signal: AbortSignal): Promise<Readable> {
    return (await this.call('GET', `${service}/blob/${sha256}`, { signal })).body;
  }

  private async putBlobOf(
    service: string,
    sha256: string,
    bytes: number,
    source: Readable,
    signal: AbortSignal,
  ): Promise<void> {
    const headers = { 'content-length': String(bytes), 'content-type': 'application/octet-stream' };
    await this.done('PUT', `${service}/blob/${sha256}`, { signal, body: source, headers });
  }

  async close(): Promise<void> {
    await this.agent.destroy();
  }

  private async done(method: Dispatcher.HttpMethod, path: string, how: How): Promise<void> {
    await (await this.call(method, path, how)).body.dump();
  }

  private async call(
    method: Dispatcher.HttpMethod,
    path: string,
    how: How,
  ): Promise<Dispatcher.ResponseData> {
    const headers: Record<string, string> = { authorization: `Bearer ${this.options.token}`, ...how.headers };
    if (how.json) headers['content-type'] = 'application/json';
    if (this.epoch !== null) headers['x-nebo-agent-epoch'] = String(this.epoch);
    const signal = how.seconds
      ? AbortSignal.any([how.signal, AbortSignal.timeout(how.seconds * 1000)])
      : how.signal;
    const answer = await request(`${this.base}${path}`, {
      method,
      headers,
      signal,
      dispatcher: this.agent,
      ...(how.body === undefined ? {} : { body: how.body }),
      // Blobs may take long in all; a gap of a minute between two bytes is a dead connection.
      headersTimeout: how.seconds ? how.seconds * 1000 : 120_000,
      bodyTimeout: 60_000,
    });
    if (answer.statusCode >= 200 && answer.statusCode < 300) return answer;
    const text = await answer.body.text().catch(() => '');
    // A taken session answers 409 too when a newer one exists; any 409 of this interface means just that.
    if (answer.statusCode === 409) throw new Superseded();
    throw new ControlPlaneError(
      answer.statusCode,
      `${method} ${path.split('?')[0]}: ${answer.statusCode} ${text.slice(0, 200)}`,
    );
  }
}

interface How {
  signal: AbortSignal;
  body?: string | Readable;
  json?: boolean;
  headers?: Record<string, string>;
  /** Limit of the whole call in seconds; none for blobs. */
  seconds?: number;
}
