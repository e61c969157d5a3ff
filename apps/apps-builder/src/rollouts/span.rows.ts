import { randomUUID } from 'node:crypto';
import { start, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import type { RolloutApp, RolloutRevision } from './rollout.rows.js';

interface OpenSpan {
  id: string;
  replica_count: number;
  vcpu: number;
  memory_mb: number;
}

/**
 * Makes the open span of an app what it shall be: one while permanent replicas serve, of their number and size; none
 * otherwise. The spans tell identity-billing themselves (`span.lifecycle.ts`), so billing that is away delays no deploy.
 * @param current the serving revision; null when nothing serves
 */
export async function settleSpan(tx: Sql, app: RolloutApp, current: RolloutRevision | null): Promise<void> {
  const [open] = await tx.query<OpenSpan>(
    'select id, replica_count, vcpu, memory_mb from span where app_id = $1::uuid and ended_at is null for update',
    [app.id],
  );
  const wanted =
    !app.deleted && !app.suspended && app.replica_count > 0 && current?.artifact_kind === 'server'
      ? current
      : null;
  const same =
    open &&
    wanted &&
    open.replica_count === app.replica_count &&
    open.vcpu === wanted.vcpu &&
    open.memory_mb === wanted.memory_mb;
  if (same || (!open && !wanted)) return;
  if (open) {
    await tx.query('update span set ended_at = now() where id = $1::uuid', [open.id]);
    await wake(tx, 'span', open.id);
  }
  if (wanted) {
    const id = randomUUID();
    await tx.query(
      `insert into span (id, account_id, app_id, replica_count, vcpu, memory_mb, started_at)
       values ($1::uuid, $2::uuid, $3::uuid, $4::int, $5::int, $6::int, now())`,
      [id, app.account_id, app.id, app.replica_count, wanted.vcpu, wanted.memory_mb],
    );
    await start(tx, 'span', id, 'opening');
  }
}
