import { randomUUID } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import {
  type EnvEntry,
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  type V1EnvVar,
  type V1EnvVarCreate,
} from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import {
  conflict,
  fieldError,
  type IdempotentRequest,
  type MasterKey,
  notFound,
  once,
  type OnceAnswer,
  pathId,
  RUNTIME,
  type Runtime,
} from '@nebo/service-kit';
import { AppsService } from '../apps/apps.service.js';
import { sayAct } from '../events.js';
import type { App, EnvVar } from '../generated/prisma/client.js';
import { Store } from '../shared/prisma.js';
import { Settings } from '../shared/settings.js';
import { isAlwaysSecret, isLoginVariable } from './registry-login.js';

/** What is shown of a secret (4-client-behaviours.md, 5). */
const mask = '********';

/** Most bytes of an app's variables as they are kept: each of its builds and replicas brings all of them to its region. */
const maxBytes = 256 * 1024;
/** Most bytes of one: Linux hands no longer text on to a program, with the sign and the end that stand beside (`execve`). */
const maxText = 128 * 1024 - 2;

/** A sealed variable inside a build or revision, as the database keeps it. */
export interface SealedEntry {
  name: string;
  /** Base64. */
  sealed: string;
  secret: boolean;
}

/** What a sealed value is bound to: copied to another app or name it does not open. */
const sealContext = (account: string, app: string, name: string) => `${account}|${app}|${name}`;

/** Opens the variables of a build or revision, those of a registry's login too; only for the region that runs it. */
export function openEntries(
  masterKey: MasterKey,
  account: string,
  app: string,
  entries: readonly SealedEntry[],
): EnvEntry[] {
  return entries.map(({ name, sealed, secret }) => ({
    name,
    value: masterKey.open(Buffer.from(sealed, 'base64'), sealContext(account, app, name)),
    secret,
  }));
}

/** Environment variables of apps: sealed from the first row, secrets never shown again. */
@Injectable()
export class EnvService {
  constructor(
    private readonly store: Store,
    private readonly apps: AppsService,
    private readonly settings: Settings,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  /** A page of an app's variables by name; secrets masked. */
  async list(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    page: PageQuery,
  ): Promise<PageOf<V1EnvVar>> {
    return this.store.as(caller.account_id, async ({ db }) => {
      const app = await this.apps.find(db, caller, projectId, appId);
      const where = { app_id: app.id };
      const total = await db.envVar.count({ where });
      const rows = await db.envVar.findMany({
        where,
        orderBy: [{ name: 'asc' }, { id: 'asc' }],
        skip: page.offset,
        take: page.limit,
      });
      return pageOf(
        rows.map((row) => this.record(row)),
        total,
        page,
      );
    });
  }

  /**
   * Creates a variable, or sets the one of that name in place; running replicas restart.
   * @throws ApiError 404, 409 `env_limit`, 422 for a value that no program could be given
   */
  async set(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    body: V1EnvVarCreate,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<V1EnvVar>> {
    const { masterKey } = this.runtime;
    if (Buffer.byteLength(body.name) + Buffer.byteLength(body.value) > maxText)
      throw fieldError('value', `name and value must have at most ${maxText} bytes together`);
    return this.store.as(caller.account_id, ({ db, sql }) =>
      once(sql, idem, async () => {
        const app = await this.apps.find(db, caller, projectId, appId);
        const is_secret = body.is_secret || isAlwaysSecret(body.name);
        const sealed = new Uint8Array(
          masterKey.seal(body.value, sealContext(app.account_id, app.id, body.name)),
        );
        await requireRoom(sql, app, body.name, sealed.length);
        const row = await db.envVar.upsert({
          where: { app_id_name: { app_id: app.id, name: body.name } },
          create: {
            id: randomUUID(),
            account_id: app.account_id,
            app_id: app.id,
            name: body.name,
            sealed,
            is_secret,
          },
          update: { sealed, is_secret, updated_at: new Date() },
        });
        await this.restart(sql, app, row.name);
        await sayAct(sql, caller, 'apps_add_env_var', app, { name: row.name, is_secret: row.is_secret });
        return { status: 201, body: this.record(row) };
      }),
    );
  }

  /** Deletes a variable; running replicas restart. @throws ApiError 404 */
  async delete(caller: KeyIdentity, projectId: string | null, appId: string, id: string): Promise<void> {
    await this.store.as(caller.account_id, async ({ db, sql }) => {
      const app = await this.apps.find(db, caller, projectId, appId);
      const row = await db.envVar.findFirst({ where: { id: pathId(id), app_id: app.id } });
      if (!row) throw notFound();
      // Two deletes at once: the second finds nothing.
      const { count } = await db.envVar.deleteMany({ where: { id: row.id } });
      if (count === 0) throw notFound();
      await this.restart(sql, app, row.name);
      await sayAct(sql, caller, 'apps_delete_env_var_route', app, { name: row.name });
    });
  }

  /** The first change starts a short delay, and all that come within it restart once. */
  private async restart(sql: Sql, app: App, name: string): Promise<void> {
    // No replica has it; the next build asks with it.
    if (isLoginVariable(name)) return;
    await sql.query(
      `update app set restart_at = coalesce(restart_at, now() + $2::int * interval '1 millisecond') where id = $1::uuid`,
      [app.id, this.settings.restartDelayMs],
    );
    await wake(sql, 'rollout', app.id);
  }

  private record(row: EnvVar): V1EnvVar {
    const { id, name, is_secret } = row;
    const value = is_secret
      ? mask
      : this.runtime.masterKey.open(row.sealed, sealContext(row.account_id, row.app_id, name));
    return { id, name, value, is_secret, created_at: row.created_at.toISOString() };
  }
}

/** Settings of one app take turns, or two at once would both see room. What does not grow is never refused. @throws ApiError 409 */
async function requireRoom(sql: Sql, app: App, name: string, sealedBytes: number): Promise<void> {
  await sql.query('select id::text from app where id = $1::uuid for no key update', [app.id]);
  const [kept] = await sql.query<{ others: number; before: number }>(
    `select coalesce(sum(bytes) filter (where name <> $2), 0)::int as others,
       coalesce(sum(bytes) filter (where name = $2), 0)::int as before
     from (select name, octet_length(name) + octet_length(sealed) as bytes from env_var where app_id = $1::uuid) v`,
    [app.id, name],
  );
  const bytes = Buffer.byteLength(name) + sealedBytes;
  if (bytes > kept!.before && kept!.others + bytes > maxBytes)
    throw conflict('env_limit', `the variables of an app have at most ${maxBytes / 1024} KiB in all`);
}
