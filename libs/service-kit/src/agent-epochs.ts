import { Injectable } from '@nestjs/common';
import type { AgentIdentity } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';
import { conflict } from './errors.js';

/** Which agent holds a region: the one with the highest epoch that was ever seen here. */
@Injectable()
export class Epochs {
  /**
   * Notes an agent's epoch, in the transaction of what it asks for.
   * @param writes whether something that it says is written: then no newer agent comes in before that is done
   * @throws ApiError 409 `stale_epoch` for an agent that another one has replaced
   */
  async check(tx: Sql, { region_id, epoch }: AgentIdentity, writes = true): Promise<void> {
    // Mostly it is known, and was here just now: then nothing is to be written.
    const known = await tx.query(
      `select 1 as known from region_agent
       where region_id = $1::uuid and epoch = $2::bigint and seen_at > now() - interval '10 seconds'
       ${writes ? 'for share' : ''}`,
      [region_id, epoch],
    );
    if (known.length > 0) return;
    await tx.query(
      `insert into region_agent as a (region_id, epoch) values ($1::uuid, $2::bigint)
       on conflict (region_id) do update set epoch = excluded.epoch, seen_at = now()
       where excluded.epoch > a.epoch or (excluded.epoch = a.epoch and a.seen_at < now() - interval '10 seconds')`,
      [region_id, epoch],
    );
    // Locked against a newer agent until this one's words are written.
    const [held] = await tx.query<{ epoch: bigint }>(
      'select epoch from region_agent where region_id = $1::uuid for share',
      [region_id],
    );
    if (BigInt(epoch) < held!.epoch)
      throw conflict('stale_epoch', `the region is held by a newer agent (epoch ${held!.epoch})`);
  }
}
