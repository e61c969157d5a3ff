import { createHash, randomUUID, timingSafeEqual } from 'node:crypto';
import { chmod, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo } from 'node:net';
import { type WakeAddress, type WakeDesk, WakeRefused } from '@nebo/contracts/wake';

export interface WakeDoorOptions {
  address: WakeAddress;
  /** What edges must show; null only on a socket, which its file's mode guards. */
  token: string | null;
}

/** Lets edges of other processes take holds. Every answer names this life of the agent, for which alone holds are good. */
export class WakeDoor {
  private readonly life = randomUUID();
  private readonly server: Server;

  constructor(
    private readonly desk: WakeDesk,
    private readonly options: WakeDoorOptions,
  ) {
    this.server = createServer((req, res) => {
      res.setHeader('x-nebo-agent-life', this.life);
      this.answer(req, res).catch(() => res.destroy());
    });
    // A hold waits as long as the app takes to start.
    this.server.requestTimeout = 0;
  }

  /** @throws with the code of `listen` when the address cannot be had */
  async start(): Promise<{ port: number | null }> {
    const { address } = this.options;
    // A killed agent leaves its socket behind, and there is one agent a region.
    if ('socketPath' in address) await rm(address.socketPath, { force: true });
    await new Promise<void>((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen('socketPath' in address ? { path: address.socketPath } : address, () => resolve());
    });
    if ('socketPath' in address) await chmod(address.socketPath, 0o600);
    const bound = this.server.address() as AddressInfo | string;
    return { port: typeof bound === 'string' ? null : bound.port };
  }

  async stop(): Promise<void> {
    if (!this.server.listening) return;
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    this.server.closeAllConnections();
    await closed;
  }

  private async answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    req.resume();
    if (!this.known(req)) return say(res, 401, {});
    const { pathname, searchParams } = new URL(req.url ?? '/', 'http://agent');
    if (req.method === 'GET' && pathname === '/wake/v1/alive') {
      // Never ends: that it breaks off tells an edge that its holds are gone.
      res.writeHead(200, { 'content-type': 'text/plain' }).flushHeaders();
      return;
    }
    const [, replicaId, verb] =
      /^\/wake\/v1\/replicas\/([^/]{1,100})\/(hold|renew|release)$/.exec(pathname) ?? [];
    const holder = searchParams.get('holder') ?? '';
    if (req.method !== 'POST' || replicaId === undefined || holder === '') return say(res, 404, {});
    try {
      if (verb === 'renew') return say(res, 200, { hold: await this.desk.renew(holder, replicaId) });
      if (verb === 'release') return say(res, 200, { sleeps: await this.desk.release(holder, replicaId) });
      const left = new AbortController();
      res.once('close', () => left.abort());
      return say(res, 200, { hold: await this.desk.hold(holder, replicaId, left.signal) });
    } catch (error) {
      if (!(error instanceof WakeRefused)) throw error;
      say(res, 503, { code: error.code, retry_after_ms: error.retryAfterMs });
    }
  }

  private known(req: IncomingMessage): boolean {
    const { token } = this.options;
    if (token === null) return true;
    const digest = (text: string) => createHash('sha256').update(text).digest();
    return timingSafeEqual(digest(req.headers.authorization ?? ''), digest(`Bearer ${token}`));
  }
}

function say(res: ServerResponse, status: number, value: object): void {
  res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
}
