import { Client } from 'undici';

/** How often connections that nobody needs are looked for; one that was idle between two looks is closed. */
const LOOK_MS = 10_000;

interface Idle {
  client: Client;
  /** Number of the look at which it was given back. */
  since: number;
}

/**
 * Connections to replicas, one request at a time each, as many as there are requests: an open stream must never make another
 * one wait. The one that was used last is taken first, so that those beyond need grow old and go. A pool of undici looks for
 * a free connection among all, at each request.
 */
export class Connections {
  private readonly idle = new Map<string, Idle[]>();
  private readonly all = new Set<Client>();
  private look = 0;
  private readonly timer: NodeJS.Timeout;

  constructor(private readonly options: Client.Options) {
    this.timer = setInterval(() => this.prune(), LOOK_MS).unref();
  }

  /** Connections that there are now, used or idle. */
  get size(): number {
    return this.all.size;
  }

  /** A connection for one request. */
  take(origin: string): Client {
    const known = this.idle.get(origin)?.pop();
    if (known) return known.client;
    const client = new Client(origin, this.options);
    this.all.add(client);
    return client;
  }

  /** @param isGood whether the exchange came to its end; otherwise the connection is not used again */
  give(origin: string, client: Client, isGood: boolean): void {
    if (!isGood || !this.all.has(client)) {
      this.all.delete(client);
      client.destroy().catch(() => undefined);
      return;
    }
    const idle = this.idle.get(origin);
    if (idle) idle.push({ client, since: this.look });
    else this.idle.set(origin, [{ client, since: this.look }]);
  }

  /** Closes all, running requests included. */
  async stop(): Promise<void> {
    clearInterval(this.timer);
    const all = [...this.all];
    this.all.clear();
    this.idle.clear();
    await Promise.all(all.map((client) => client.destroy()));
  }

  private prune(): void {
    this.look += 1;
    for (const [origin, idle] of this.idle) {
      // The longest idle ones are in front.
      const fresh = idle.findIndex(({ since }) => since >= this.look - 1);
      const old = idle.splice(0, fresh < 0 ? idle.length : fresh);
      for (const { client } of old) {
        this.all.delete(client);
        client.destroy().catch(() => undefined);
      }
      if (idle.length === 0) this.idle.delete(origin);
    }
  }
}
