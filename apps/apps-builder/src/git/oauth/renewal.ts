import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import { Database } from '@nebo/persistence';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import {
  type ConnectionRow,
  findConnection,
  markRefused,
  reconnect,
  refreshTokenOf,
  sealContext,
  tokenOf,
} from '../connections.rows.js';
import type { TokenSource } from '../git-api.js';
import { GitHostError } from '../git-host.js';
import { GitHosts } from '../git-hosts.js';
import { Settings } from '../../shared/settings.js';
import { OAuthApps } from './oauth-apps.js';
import { appToken, type Grant, TokenEndpoint } from './token-endpoint.js';

/** How long one process may be at a renewal before another takes it over; more than an exchange takes. */
const claimMs = 15_000;
/** How long one waits for another's renewal: longer than a claim, so that a process that died is outlived. */
const waitMs = 20_000;
const lookMs = 150;
/** A stop has ten seconds for everything. */
const stopMs = 5_000;
/** A region waits at most so long for a token that is good for a while yet: it hears of the new one when that is there. */
const patienceMs = 2_000;
/** After a renewal for a region's sake that brought nothing the region waits for none of this connection for so long. */
const restMs = 30_000;
/** Longest pause between two tries to keep a new grant. */
const keepMs = 2_000;

/** Where answers of OAuth come back to, below the public address. */
export const callbackPath = '/hooks/git/oauth/callback';

/**
 * Keeps the tokens of OAuth apps alive. A token is renewed before it runs out, by one process at a time: the claim is a
 * guarded statement on the connection's row, which nobody holds a transaction open for. What the host gives is written at
 * once, over exactly the token that was renewed, again and again while the database is away: a host that has given a new
 * grant may not take the old one any more.
 */
@Injectable()
export class TokenRenewal implements OnModuleDestroy {
  private readonly flights = new Map<string, Promise<ConnectionRow>>();
  /** Connections whose host brought nothing, and until when no region waits for it; milliseconds since 1970. */
  private readonly resting = new Map<string, number>();

  constructor(
    private readonly database: Database,
    private readonly hosts: GitHosts,
    private readonly apps: OAuthApps,
    private readonly settings: Settings,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  /** A stop waits for what is on its way, as long as it may. */
  async onModuleDestroy(): Promise<void> {
    const over = new AbortController();
    const longest = sleep(stopMs, undefined, { signal: over.signal, ref: false }).catch(() => undefined);
    await Promise.race([Promise.allSettled(this.flights.values()), longest]);
    over.abort();
  }

  /** The token of a connection, alive; the row in hand follows what its table has. */
  source(row: ConnectionRow): TokenSource {
    const renewed = async (refused: string | null) => {
      Object.assign(row, await this.renewed(row.id, refused));
      return tokenOf(this.runtime.masterKey, row);
    };
    return {
      token: async () => (isDue(row) ? renewed(null) : tokenOf(this.runtime.masterKey, row)),
      renewed: async (refused) => (row.auth === 'token' ? null : renewed(refused)),
    };
  }

  /**
   * Renews what the builds of a region that nobody has begun would be fetched with, where it is about to run out. A failure
   * is the build's to say. All that the region has to do waits here, of every account: never for a host that does not answer.
   */
  async beforeClones(regionId: string): Promise<void> {
    const rows = await this.database.transaction((tx) =>
      tx.query<{ id: string; over: boolean }>(
        `select distinct g.id, coalesce(g.token_expires_at <= now(), false) as over
         from build b join git_connection g on g.id = b.git_connection_id
         where b.region_id = $1::uuid and b.status = 'queued' and not b.gone and b.source_sha256 is null
           and g.status = 'active' and g.deleted_at is null and g.token_renew_at <= now()`,
        [regionId],
      ),
    );
    for (const [id, until] of this.resting) if (until <= Date.now()) this.resting.delete(id);
    await Promise.all(
      rows
        .filter(({ id }) => !this.resting.has(id))
        .map(({ id, over }) => {
          const flight = this.forRegion(id);
          return over ? flight : Promise.race([flight, sleep(patienceMs, undefined, { ref: false })]);
        }),
    );
  }

  private async forRegion(id: string): Promise<void> {
    try {
      if (!isDue(await this.renewed(id, null))) return;
    } catch (err) {
      this.runtime.log.warn({ err, connection: id }, 'the token of a queued build was not renewed');
    }
    this.resting.set(id, Date.now() + restMs);
  }

  /** One at a time in this process; the claim sees to the others. */
  private renewed(id: string, refused: string | null): Promise<ConnectionRow> {
    const key = `${id} ${refused ?? ''}`;
    const known = this.flights.get(key);
    if (known) return known;
    const flight = this.fly(id, refused).finally(() => this.flights.delete(key));
    this.flights.set(key, flight);
    return flight;
  }

  private async fly(id: string, refused: string | null): Promise<ConnectionRow> {
    const end = Date.now() + waitMs;
    for (;;) {
      const row = await this.database.transaction((tx) => findConnection(tx, id, { deleted: true }));
      if (row === null) throw new GitHostError('unauthorized', 'the connection is not there any more');
      if (tokenOf(this.runtime.masterKey, row) !== refused && !isDue(row)) return row;
      const claim = await this.claim(row);
      if (claim !== null) return this.renew(row, claim, refused !== null);
      if (Date.now() > end) throw new GitHostError('away', 'its token is being renewed; try again');
      await sleep(lookMs);
    }
  }

  /** @returns null while another process renews it, or when it has */
  private async claim(row: ConnectionRow): Promise<string | null> {
    const claim = randomUUID();
    const rows = await this.database.transaction((tx) =>
      tx.query(
        `update git_connection set renewing = $2::uuid, renewing_since = now()
         where id = $1::uuid and token_sealed = decode($3, 'base64')
           and (renewing is null or renewing_since < now() - $4::int * interval '1 millisecond') returning 1 as claimed`,
        [row.id, claim, base64(row.token_sealed), claimMs],
      ),
    );
    return rows.length === 0 ? null : claim;
  }

  private async renew(row: ConnectionRow, claim: string, isRefused: boolean): Promise<ConnectionRow> {
    let grant: Grant;
    try {
      grant = await this.ask(row);
    } catch (error) {
      await this.release(row, claim);
      if (!(error instanceof GitHostError)) throw error;
      if (error.failure === 'unauthorized') {
        await this.database.transaction((tx) => markRefused(tx, row, reconnect(row)));
        throw error;
      }
      // It is renewed well before its end: until then a host that is away stops nothing.
      if (!isRefused && !isOver(row)) return row;
      throw error;
    }
    return this.keep(row, grant);
  }

  private async ask(row: ConnectionRow): Promise<Grant> {
    const base = row.base_url === '' ? null : row.base_url;
    const host = this.hosts.find(row.provider);
    const addresses = host?.addresses(base) ?? null;
    const app = this.apps.find(row.provider, base);
    if (!host?.oauth || addresses === null || app === null)
      throw new GitHostError(
        'away',
        `this installation has no OAuth app for ${row.provider} any more: connect it by a token, or ask the operator`,
      );
    if (row.auth === 'installation') {
      if (!host.installations || app.installed === null || row.installation_id === null)
        throw new GitHostError('away', `this installation has no app of ${row.provider} any more`);
      const appApi = this.hosts.api(host, addresses.api, appToken(app.installed));
      try {
        const { token, expiresInS } = await host.installations.token(appApi, row.installation_id);
        return { token, refreshToken: null, expiresInS };
      } catch (error) {
        // Uninstalled: the app knows no such installation.
        if (error instanceof GitHostError && error.failure === 'not_found')
          throw new GitHostError('unauthorized', `the app is not installed at ${row.provider} any more`);
        throw error;
      }
    }
    const refresh = refreshTokenOf(this.runtime.masterKey, row);
    if (refresh === null) throw new GitHostError('unauthorized', 'the grant is over');
    const redirectUri = `${this.settings.publicUrl}${callbackPath}`;
    return new TokenEndpoint(this.hosts.client, host.oauth, addresses, app, redirectUri).refresh(refresh);
  }

  /**
   * Writes a new grant over the token that it was got by, whoever has claimed the renewal since: the older grant may be
   * worth nothing now. Builds that wait for their turn get the new token.
   */
  private async keep(row: ConnectionRow, grant: Grant): Promise<ConnectionRow> {
    for (let pause = 50; ; pause = Math.min(pause * 2, keepMs)) {
      try {
        return await this.database.transaction(async (tx) => {
          const { id, account_id } = row;
          const seal = (text: string, what: 'token' | 'refresh') =>
            this.runtime.masterKey.seal(text, sealContext(account_id, id, what)).toString('base64');
          const rows = await tx.query(
            `update git_connection set token_sealed = decode($3, 'base64'),
               refresh_sealed = coalesce(decode($4, 'base64'), refresh_sealed),
               token_expires_at = now() + $5::int * interval '1 second',
               token_renew_at = now() + greatest($5::int - 600, $5::int / 2) * interval '1 second',
               renewing = null, renewing_since = null, status = 'active', status_reason = null, checked_at = now()
             where id = $1::uuid and token_sealed = decode($2, 'base64') returning 1 as kept`,
            [
              id,
              base64(row.token_sealed),
              seal(grant.token, 'token'),
              grant.refreshToken === null ? null : seal(grant.refreshToken, 'refresh'),
              grant.expiresInS,
            ],
          );
          if (rows.length > 0) {
            await tx.query(
              `update build set generation = generation + 1
               where git_connection_id = $1::uuid and status = 'queued' and observed_state is null and not gone
                 and source_sha256 is null`,
              [id],
            );
          }
          const present = await findConnection(tx, id, { deleted: true });
          if (present === null)
            throw new GitHostError('unauthorized', 'the connection is not there any more');
          return present;
        });
      } catch (err) {
        if (err instanceof GitHostError) throw err;
        this.runtime.log.error({ err, connection: row.id }, 'a new grant of a git host is not kept yet');
        await sleep(pause);
      }
    }
  }

  private async release(row: ConnectionRow, claim: string): Promise<void> {
    await this.database.transaction((tx) =>
      tx.query(
        'update git_connection set renewing = null, renewing_since = null where id = $1::uuid and renewing = $2::uuid',
        [row.id, claim],
      ),
    );
  }
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

const isDue = ({ token_renew_at }: ConnectionRow): boolean =>
  token_renew_at !== null && new Date(token_renew_at).getTime() <= Date.now();

const isOver = ({ token_expires_at }: ConnectionRow): boolean =>
  token_expires_at !== null && new Date(token_expires_at).getTime() <= Date.now();
