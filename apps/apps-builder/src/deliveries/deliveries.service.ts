import { createHash, randomUUID } from 'node:crypto';
import { type Readable } from 'node:stream';
import { Inject, Injectable } from '@nestjs/common';
import { type KeyIdentity, type PageOf, pageOf, type PageQuery, type V1AppDelivery } from '@nebo/contracts';
import { start, wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { ApiError, badRequest, jsonText, notFound, RUNTIME, type Runtime, tooLarge } from '@nebo/service-kit';
import { AppsService } from '../apps/apps.service.js';
import { type ConnectionRow, findConnection, hookSecretOf } from '../git/connections.rows.js';
import type { DeliveryContent, DeliveryHeaders, GitHost, Push } from '../git/git-host.js';
import { GitHosts } from '../git/git-hosts.js';
import { Settings } from '../shared/settings.js';
import { Store } from '../shared/prisma.js';
import { DeliveryRoom, readBody } from './delivery-room.js';
import { judge, type Verdict, type WantsPushes } from './judge.js';

/** What a git host is answered. */
export interface DeliveryAnswer {
  /** 202 when a build follows, 200 when none does. */
  status: 200 | 202;
  body: { outcome: string; reason: string };
}

interface HeardApp extends WantsPushes {
  id: string;
  /** A push waits for its build. */
  is_due: boolean;
  /** The newest build, unless it failed: a host may be asked to send a push again for such a one. */
  build_id: string | null;
  build_commit: string | null;
  build_branch: string | null;
}

/** What stands in a row of the log. */
interface Entry {
  app_id: string | null;
  dedupe: string;
  event: string;
  push: Push | null;
  verdict: { outcome: 'accepted' | 'ignored' | 'refused'; reason: string };
  build_id?: string | null;
}

/** What makes a delivery the same as another one. */
interface Sameness {
  dedupe: string;
  /** The host has given it an id; else it may be told apart from a push of before by nothing. */
  named: boolean;
}

/** A line of the log after an entry: of a repeat, the one that was there. */
interface Line {
  /** 0: it is new. */
  repeats: number;
  build_id: string | null;
}

/** Equal bodies of a host without ids of deliveries share a line within so long, milliseconds, while nothing came of the first. */
const repeatMs = 10_000;

/** What git hosts say of repositories: believed once signed, logged with what became of it. */
@Injectable()
export class DeliveriesService {
  private readonly room = new DeliveryRoom();

  constructor(
    private readonly database: Database,
    private readonly store: Store,
    private readonly apps: AppsService,
    private readonly hosts: GitHosts,
    private readonly settings: Settings,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  /** A page of what came for an app, newest first, with what was refused of its connection. */
  async list(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    page: PageQuery,
  ): Promise<PageOf<V1AppDelivery>> {
    return this.store.as(caller.account_id, async ({ db, sql }) => {
      const app = await this.apps.find(db, caller, projectId, appId);
      const mine = `from delivery d where d.app_id = $1::uuid
        or (d.app_id is null and d.outcome = 'refused' and d.connection_id::text = $2)`;
      const values = [app.id, app.git_connection_id ?? ''];
      const [count] = await sql.query<{ total: number }>(`select count(*)::int as total ${mine}`, values);
      // Where the host named no commit, the build did.
      const rows = await sql.query<Omit<V1AppDelivery, 'received_at'> & { received_at: Date }>(
        `select d.id, d.connection_id, d.event, d.branch,
           coalesce(d.commit_sha, (select b.commit_sha from build b where b.id = d.build_id)) as commit_sha,
           d.outcome, d.reason, d.build_id, d.repeats, d.received_at ${mine}
         order by d.seq desc limit $3::int offset $4::int`,
        [...values, page.limit, page.offset],
      );
      const data = rows.map((row) => ({ ...row, received_at: new Date(row.received_at).toISOString() }));
      return pageOf(data, count!.total, page);
    });
  }

  /**
   * Takes a delivery: the signature over the raw bytes first, nothing is believed before.
   * @param type media type that the host gave the body
   * @throws ApiError 404 unknown connection, 401 without a signature, 403 with a wrong one, 413, 400 for what cannot be
   *   read, 408, 503
   */
  async take(
    connectionId: string,
    headers: DeliveryHeaders,
    type: string,
    body: Readable,
  ): Promise<DeliveryAnswer> {
    const connection = await this.database.transaction((tx) => findConnection(tx, connectionId));
    const host = connection === null ? null : this.hosts.find(connection.provider);
    if (connection === null || host === null) throw notFound();
    return this.room.in(connection.account_id, async () => {
      const bytes = await readBody(body, this.settings.hookBytes);
      if (bytes === null) {
        await this.refuse(connection, `the body is larger than ${this.settings.hookBytes} bytes`);
        throw tooLarge(`a delivery has at most ${this.settings.hookBytes} bytes`);
      }
      if (!host.verify(headers, bytes, hookSecretOf(this.runtime.masterKey, connection)))
        throw await this.unsigned(connection, host, headers);
      return this.believe(connection, host, headers, type, bytes);
    });
  }

  private async unsigned(
    connection: ConnectionRow,
    host: GitHost,
    headers: DeliveryHeaders,
  ): Promise<ApiError> {
    const signed = host.signatureHeaders.some((name) => (headers[name] ?? '') !== '');
    const reason = signed ? 'the signature is wrong' : 'there is no signature';
    await this.refuse(connection, reason);
    return signed
      ? new ApiError(403, 'signature_invalid', reason)
      : new ApiError(401, 'signature_missing', reason);
  }

  private async believe(
    connection: ConnectionRow,
    host: GitHost,
    headers: DeliveryHeaders,
    type: string,
    bytes: Buffer,
  ): Promise<DeliveryAnswer> {
    const id = host.deliveryId(headers);
    const named = id !== null;
    const dedupe = named
      ? `id:${id.slice(0, 200)}`
      : `body:${createHash('sha256').update(bytes).digest('hex')}:${Math.floor(Date.now() / repeatMs)}`;
    let content: DeliveryContent;
    try {
      content = host.read(headers, parse(type, bytes));
    } catch {
      const verdict = { outcome: 'refused' as const, reason: 'the body is not what this git host sends' };
      await this.database.transaction((tx) =>
        this.log(tx, connection, { app_id: null, dedupe, event: 'unknown', push: null, verdict }),
      );
      throw badRequest('bad_request', verdict.reason);
    }
    return this.database.transaction((tx) => this.tell(tx, connection, { dedupe, named }, content));
  }

  /** Tells every app that is built from the repository; the answer is the best of what becomes of it. */
  private async tell(
    tx: Sql,
    connection: ConnectionRow,
    { dedupe, named }: Sameness,
    content: DeliveryContent,
  ): Promise<DeliveryAnswer> {
    const event = content.kind === 'other' ? content.event : content.kind;
    const push = content.kind === 'push' ? content : null;
    // Locked in one order, so that two deliveries at once cannot wait for each other.
    const apps = await tx.query<HeardApp>(
      `select a.id, a.branch, a.auto_deploy, a.root_directory, a.push_at is not null as is_due, b.id as build_id,
         b.commit_sha as build_commit, b.branch as build_branch
       from app a left join lateral (select * from build n where n.app_id = a.id order by n.seq desc limit 1) b
         on b.status in ('queued', 'building', 'success')
       where a.git_connection_id = $1 and a.repo_key = lower($2) and a.deleted_at is null order by a.id for update of a`,
      [connection.id, content.repo_full_name ?? ''],
    );
    if (apps.length === 0) {
      const reason = `no app is built from ${content.repo_full_name ?? 'it'}`;
      const verdict: Verdict = { outcome: 'ignored', reason };
      await this.log(tx, connection, { app_id: null, dedupe, event, push, verdict });
      return { status: 200, body: { ...verdict } };
    }
    let best: Verdict | null = null;
    for (const app of apps) {
      const judged = verdictOf(content, app);
      const replayed = judged.outcome === 'accepted' && isBuilt(push, app);
      const verdict: Verdict = replayed
        ? { outcome: 'ignored', reason: `${push!.commit!.slice(0, 12)} of ${app.branch} is built already` }
        : judged;
      const build_id = replayed ? app.build_id : null;
      const entry = { app_id: app.id, dedupe, event, push, verdict, build_id };
      const line = await this.log(tx, connection, entry);
      // Without an id it may be another push all the same: the head of the branch tells, and then it has a line of its own.
      const again = line.repeats > 0 && !named && verdict.outcome === 'accepted';
      if (again && line.build_id !== null)
        await this.log(tx, connection, { ...entry, dedupe: `${dedupe}:${line.repeats}` });
      const become: Verdict =
        line.repeats === 0 || again
          ? verdict
          : { outcome: 'ignored', reason: 'this delivery has come before' };
      if (become.outcome === 'accepted') await this.due(tx, app.id);
      if (best === null || become.outcome === 'accepted') best = become;
    }
    return { status: best!.outcome === 'accepted' ? 202 : 200, body: { ...best! } };
  }

  private async due(tx: Sql, appId: string): Promise<void> {
    await tx.query(
      `update app set push_at = clock_timestamp(), push_since = coalesce(push_since, clock_timestamp()) where id = $1::uuid`,
      [appId],
    );
    if (!(await wake(tx, 'push', appId))) await start(tx, 'push', appId, 'due');
  }

  /** Writes a line of the log; one that came before counts as a repeat of it. */
  private async log(tx: Sql, connection: ConnectionRow, entry: Entry): Promise<Line> {
    const { app_id, dedupe, event, push, verdict } = entry;
    const [row] = await tx.query<Line>(
      `insert into delivery (id, account_id, connection_id, app_id, dedupe, event, branch, commit_sha, outcome, reason,
         build_id)
       values ($1::uuid, $2::uuid, $3::uuid, $4::uuid, $5, $6, $7, $8, $9, $10, $11::uuid)
       on conflict (connection_id, dedupe, app_id) do update set repeats = delivery.repeats + 1
       returning repeats, build_id`,
      [
        randomUUID(),
        connection.account_id,
        connection.id,
        app_id,
        dedupe,
        event,
        push?.branch ?? push?.tag ?? null,
        push?.commit ?? null,
        verdict.outcome,
        verdict.reason.slice(0, 1_000),
        entry.build_id ?? null,
      ],
    );
    return row!;
  }

  /** Writes down a refusal without a word of its content; equal ones of a minute are one line, however many come. */
  private async refuse(connection: ConnectionRow, reason: string): Promise<void> {
    const verdict = { outcome: 'refused' as const, reason };
    const dedupe = `refused:${reason}:${Math.floor(Date.now() / 60_000)}`;
    await this.database.transaction((tx) =>
      this.log(tx, connection, { app_id: null, dedupe, event: 'unknown', push: null, verdict }),
    );
  }
}

function verdictOf(content: DeliveryContent, app: HeardApp): Verdict {
  if (content.kind === 'push') return judge(content, app);
  return {
    outcome: 'ignored',
    reason: content.kind === 'ping' ? 'the webhook works' : `${content.event}: only pushes are built`,
  };
}

/**
 * Whether the newest build is that of the push: it was told twice under two ids, or somebody deployed by hand meanwhile. With
 * a push waiting nobody can tell, and what is built then is asked of the host anyway.
 */
const isBuilt = (push: Push | null, app: HeardApp): boolean =>
  push !== null &&
  push.commit !== null &&
  !app.is_due &&
  app.build_id !== null &&
  app.build_commit === push.commit &&
  app.build_branch === push.branch;

/** JSON, or a form whose field `payload` is JSON, as two hosts can be set to send it. */
function parse(type: string, bytes: Buffer): unknown {
  if (type === 'application/x-www-form-urlencoded') {
    const payload = new URLSearchParams(bytes.toString('utf8')).get('payload');
    if (payload === null) throw new Error('a form without a payload');
    return JSON.parse(jsonText(Buffer.from(payload)));
  }
  return JSON.parse(jsonText(bytes));
}
