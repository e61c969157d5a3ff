import { randomUUID } from 'node:crypto';
import { say } from '@nebo/bus';
import { start, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { says } from '../events.js';
import type { CommitSource } from '../sources/sources.service.js';

/** Bytes that a build is made of. */
export interface Source {
  sha256: string;
  bytes: bigint;
}

/** An image that a build is made of. */
export interface NamedImage {
  reference: string;
  /** Null: what the reference stands for when the region looks. */
  digest: string | null;
}

/**
 * What a build is made of: stored bytes, a commit that the region fetches, or the stored bytes of a commit; or an image, the
 * bytes being then the document of an earlier build of it.
 */
export interface BuildSource {
  bytes?: Source | null;
  commit?: CommitSource | null;
  image?: NamedImage | null;
}

/** An app as far as a new build needs it. */
interface BuiltApp {
  id: string;
  account_id: string;
  region_id: string;
}

/**
 * The only way a build comes to be: its row with the variables of this moment, and its first state, in one transaction.
 * @returns the queued build
 */
export async function beginBuild(
  tx: Sql,
  app: BuiltApp,
  cause: 'upload' | 'deploy' | 'rebuild' | 'push',
  { bytes = null, commit = null, image = null }: BuildSource,
): Promise<{ id: string; app_id: string; status: string }> {
  const id = randomUUID();
  await tx.query(
    `insert into build (id, account_id, app_id, region_id, cause, source_sha256, source_bytes, commit_sha, commit_message,
       commit_author, branch, clone_url, clone_username, git_connection_id, docker_image, docker_image_digest, env)
     values ($1::uuid, $2::uuid, $3::uuid, $4::uuid, $5, $6, $7::bigint, $8, $9, $10, $11, $12, $13, $14::uuid, $15, $16,
       (select coalesce(jsonb_agg(jsonb_build_object('name', name, 'sealed', encode(sealed, 'base64'), 'secret', is_secret) order by name), '[]')
        from env_var where app_id = $3::uuid))`,
    [
      id,
      app.account_id,
      app.id,
      app.region_id,
      cause,
      bytes?.sha256 ?? null,
      bytes?.bytes.toString() ?? null,
      commit?.commit.sha ?? null,
      commit?.commit.message ?? null,
      commit?.commit.author ?? null,
      commit?.branch ?? null,
      commit?.clone_url ?? null,
      commit?.clone_username ?? null,
      commit?.connection_id ?? null,
      image?.reference ?? null,
      image?.digest ?? null,
    ],
  );
  await start(tx, 'build', id, 'queued');
  if (commit !== null && commit.connection_id !== null) await start(tx, 'commit_status', id, 'telling');
  return { id, app_id: app.id, status: 'queued' };
}

/** Why somebody's own build has no result. */
export const cancelledOnRequest = 'cancelled on request';

/** Calls off the builds of earlier pushes that no region has begun; what has begun goes on to its end. */
export async function callOffQueued(
  tx: Sql,
  app: Pick<BuiltApp, 'id' | 'account_id'>,
  why: string,
): Promise<void> {
  const ended = await tx.query<{ id: string }>(
    `update build set status = 'cancelled', error = $2, finished_at = now(), gone = true, generation = generation + 1,
       log_done = true
     where app_id = $1::uuid and cause = 'push' and status = 'queued' and observed_state is null and not gone returning id`,
    [app.id, why],
  );
  for (const { id } of ended) {
    await wake(tx, 'build', id);
    await say(
      tx,
      says.buildFinished(
        { build_id: id, app_id: app.id, status: 'cancelled', error: why, duration_ms: null },
        { account: app.account_id },
      ),
    );
  }
}
