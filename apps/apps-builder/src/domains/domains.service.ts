import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import {
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  type V1AppDomain,
  type V1DomainCreate,
} from '@nebo/contracts';
import { start, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import {
  conflict,
  fieldError,
  type IdempotentRequest,
  notFound,
  once,
  type OnceAnswer,
  pathId,
} from '@nebo/service-kit';
import { AppsService } from '../apps/apps.service.js';
import { says, sayAct } from '../events.js';
import { Store } from '../shared/prisma.js';
import { Settings } from '../shared/settings.js';
import { baseName, challengeName, domainName } from './domain-name.js';
import { DomainProof } from './domain-proof.js';
import { domainRecord, type DomainRecordRow, holdName, recordColumns } from './domain.rows.js';

/** Most custom domains of an app. */
const maxDomains = 100;

/** Names that lead to apps: what their owners want. What becomes of it is the domain lifecycle's. */
@Injectable()
export class DomainsService {
  constructor(
    private readonly store: Store,
    private readonly apps: AppsService,
    private readonly proof: DomainProof,
    private readonly settings: Settings,
  ) {}

  /** A page of an app's domains, the default one first. @throws ApiError 404 */
  async list(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    page: PageQuery,
  ): Promise<PageOf<V1AppDomain>> {
    return this.store.as(caller.account_id, async ({ db, sql }) => {
      const app = await this.apps.find(db, caller, projectId, appId);
      const total = await db.appDomain.count({ where: { app_id: app.id, deleted_at: null } });
      const rows = await sql.query<DomainRecordRow>(
        `select ${recordColumns} from app_domain where app_id = $1::uuid and deleted_at is null
         order by is_default desc, created_at, id limit $2::int offset $3::int`,
        [app.id, page.limit, page.offset],
      );
      return pageOf(
        rows.map((row) => domainRecord(row, this.settings.visitorPort)),
        total,
        page,
      );
    });
  }

  /**
   * Adds a custom domain: `pending` until its owner has shown that it is theirs and it leads here.
   * @throws ApiError 404, 422 for what is no name, 409 `domain_taken` for a name of another app or account,
   *   `domain_reserved` for one of the platform's own, `domain_limit`
   */
  async add(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    body: V1DomainCreate,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<V1AppDomain>> {
    const host = domainName(body.domain);
    if (host === null)
      throw fieldError(
        'domain',
        'must be a name of at least two labels like shop.example.com, or *. and one',
      );
    const { appsDomain } = this.settings;
    const base = baseName(host);
    if (base === appsDomain || base.endsWith(`.${appsDomain}`))
      throw conflict('domain_reserved', `names under ${appsDomain} are given out by the platform`);
    // Outside of the transaction: a resolver may take seconds.
    const proven = await this.provesTaken(caller, host);
    return this.store.as(caller.account_id, ({ db, sql }) =>
      once(sql, idem, async () => {
        const app = await this.apps.find(db, caller, projectId, appId);
        await holdName(sql, host);
        await this.refuseTaken(sql, caller, app.id, host, proven);
        // Additions to one app stand in line behind its row, so that the limit holds for parallel ones.
        await sql.query('select id::text from app where id = $1::uuid for update', [app.id]);
        const count = await db.appDomain.count({ where: { app_id: app.id, deleted_at: null } });
        if (count > maxDomains)
          throw conflict('domain_limit', `an app has at most ${maxDomains} custom domains`);
        const id = randomUUID();
        const [row] = await sql.query<DomainRecordRow>(
          `insert into app_domain (id, account_id, app_id, host, status, target_ip, override_dns, skip_certificate)
           values ($1::uuid, $2::uuid, $3::uuid, $4, 'pending', $5, $6, $7) returning ${recordColumns}`,
          [
            id,
            caller.account_id,
            app.id,
            host,
            this.settings.targetIp,
            body.override_dns,
            body.skip_certificate,
          ],
        );
        await start(sql, 'domain', id, 'checking');
        await sayAct(sql, caller, 'apps_add_domain', app, { domain: host, domain_id: id });
        return { status: 201, body: domainRecord(row!, this.settings.visitorPort) };
      }),
    );
  }

  /**
   * Removes a custom domain from any state: nothing leads here from this moment, its records in DNS follow.
   * @throws ApiError 404, 409 `default_domain` for the default one
   */
  async remove(caller: KeyIdentity, projectId: string | null, appId: string, id: string): Promise<void> {
    await this.store.as(caller.account_id, async ({ db, sql }) => {
      const app = await this.apps.find(db, caller, projectId, appId);
      const row = await db.appDomain.findFirst({
        where: { id: pathId(id), app_id: app.id, deleted_at: null },
      });
      if (!row) throw notFound();
      if (row.is_default) throw conflict('default_domain', 'the default domain of an app stays with it');
      // Two deletes at once: the second finds nothing.
      const gone = await sql.query(
        `update app_domain set deleted_at = now(), verified_at = null where id = $1::uuid and deleted_at is null returning 1 as gone`,
        [row.id],
      );
      if (gone.length === 0) throw notFound();
      await sql.query(
        'update route set removed_at = now() where host = $1 and app_id = $2::uuid and removed_at is null',
        [row.host, app.id],
      );
      await wake(sql, 'domain', row.id);
      const event = says.domainStatus(
        { domain_id: row.id, app_id: app.id, host: row.host, status: 'deleted', error: null },
        { account: caller.account_id },
      );
      await sayAct(sql, caller, 'apps_remove_domain', app, { domain: row.host, domain_id: row.id }, event);
    });
  }

  /** Whether the caller shows by a TXT record that a name is theirs which another account has now. */
  private async provesTaken(caller: KeyIdentity, host: string): Promise<boolean> {
    const taken = await this.store.as('system', ({ sql }) => holderOf(sql, host));
    if (!taken || taken.account_id === caller.account_id) return false;
    return (await this.proof.hasText(caller.account_id, host)) === true;
  }

  private async refuseTaken(
    sql: Sql,
    caller: KeyIdentity,
    appId: string,
    host: string,
    proven: boolean,
  ): Promise<void> {
    const [own] = await sql.query<{ app_id: string }>(
      'select app_id from app_domain where account_id = $1::uuid and host = $2 and deleted_at is null',
      [caller.account_id, host],
    );
    if (own)
      throw conflict(
        'domain_taken',
        own.app_id === appId
          ? `${host} is a domain of this app`
          : `${host} is a domain of another app of yours`,
      );
    if (proven) return;
    await sql.query("select set_config('app.account', 'system', true)");
    const holder = await holderOf(sql, host);
    await sql.query("select set_config('app.account', $1, true)", [caller.account_id]);
    if (holder)
      throw conflict(
        'domain_taken',
        `${host} leads to an app of another account; if the name is yours, set a TXT record of ${challengeName(host)} to ${this.proof.text(caller.account_id, host)} and repeat`,
      );
  }
}

/** The owner of a name, whoever it is. */
async function holderOf(sql: Sql, host: string): Promise<{ account_id: string } | undefined> {
  const [row] = await sql.query<{ account_id: string }>(
    'select account_id from app_domain where host = $1 and verified_at is not null',
    [host],
  );
  return row;
}
