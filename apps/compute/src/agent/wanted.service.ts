import { Inject, Injectable } from '@nestjs/common';
import type { AgentIdentity, BackupSpec, BlobRef, MachineSpec, Wanted, WantedAnswer } from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import {
  Changes,
  cursorOf,
  Epochs,
  type Feed,
  numberAfter,
  Pace,
  RUNTIME,
  type Runtime,
} from '@nebo/service-kit';
import { userDataContext } from '../vms/vm-orders.service.js';
import { effectivePower } from '../vms/vm.rows.js';
import type { Topic } from '../shared/topics.js';

/** What was locked is looked at again after so many milliseconds, whether its holder says something or not. */
const skippedMs = 100;

/** Machines in a page of a full answer. */
const pageSize = 2_000;

/** A blob as SQL builds it: without a hash there is none. */
interface MaybeBlob {
  sha256: string | null;
  bytes: number;
}

interface Row {
  id: string;
  generation: number;
  gone: boolean;
  account_id: string;
  name: string;
  hostname: string;
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
  image_id: string;
  filename: string;
  image_blob: MaybeBlob;
  restore: { number: number; blob: MaybeBlob };
  default_user: string;
  ssh_keys: string[];
  user_data: Buffer | null;
  install_guest_agent: boolean;
  power: 'running' | 'stopped';
  boot: number;
  interfaces: MachineSpec['interfaces'];
}

/** In a full answer absence means "remove it": what an agent may have stands in it although it is being changed. */
const everything = `v.handed and ($2::uuid is null or v.id > $2::uuid) order by v.id limit ${pageSize}`;

/** What a region shall make so. The only place where user data is opened. */
@Injectable()
export class WantedService {
  private readonly pace = new Pace();

  constructor(
    private readonly database: Database,
    private readonly changes: Changes<Topic>,
    private readonly epochs: Epochs,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'masterKey'>,
  ) {}

  /**
   * What changed in a region after a cursor; waits while nothing does.
   * @param since null, or a cursor that is too old or another database's: everything
   * @param waitMs 0 answers at once
   * @param next of the page before, of everything
   * @throws ApiError 409 `stale_epoch`, also when a newer agent comes while this one waits
   */
  async since(
    agent: AgentIdentity,
    since: string | null,
    waitMs: number,
    gone: AbortSignal,
    next: string | null = null,
  ): Promise<WantedAnswer> {
    const ear = this.changes.listen(`wanted:${agent.region_id}`);
    const over = AbortSignal.any([gone, this.changes.stopping]);
    const end = Date.now() + waitMs;
    const reader = agent.region_id;
    try {
      if (since !== null && waitMs > 0) await this.pace.wait(reader);
      for (;;) {
        const { skipped, ...answer } = await this.database.transaction((tx) =>
          this.read(tx, agent, since, next),
        );
        const left = end - Date.now();
        if (answer.items.length > 0) this.pace.tell(reader, answer.items.length);
        if (answer.full || answer.items.length > 0 || left <= 0 || over.aborted) return answer;
        if (await ear.next(skipped ? Math.min(left, skippedMs) : left, over)) await this.pace.gather(reader);
      }
    } finally {
      ear.close();
    }
  }

  private async read(
    tx: Sql,
    agent: AgentIdentity,
    since: string | null,
    next: string | null,
  ): Promise<WantedAnswer & { skipped: boolean }> {
    await this.epochs.check(tx, agent, false);
    const [feed] = await tx.query<Feed & { skipped: boolean }>('select * from feed_now($1::uuid)', [
      agent.region_id,
    ]);
    const after = next === null ? numberAfter(feed!, since) : null;
    if (after !== null && after >= feed!.top)
      return { cursor: cursorOf(feed!), full: false, items: [], next: null, skipped: feed!.skipped };
    const rows = await tx.query<Row>(
      `select v.id, v.generation, v.gone, v.account_id, v.name, v.hostname, v.vcpu, v.memory_mb, v.disk_gb, v.image_id,
         m.filename, json_build_object('sha256', m.sha256, 'bytes', m.bytes) as image_blob,
         json_build_object('number', v.restore_number, 'blob',
           json_build_object('sha256', v.restore_sha256, 'bytes', v.restore_bytes)) as restore, v.default_user, v.ssh_keys, v.user_data, v.install_guest_agent, ${effectivePower} as power, v.boot,
         (select coalesce(json_agg(json_build_object('id', i.id, 'name', 'eth' || i.position, 'vpc_id', i.vpc_id,
            'mac', i.mac, 'address', i.address) order by i.position), '[]')
          from vm_interface i where i.vm_id = v.id) as interfaces
       from vm v join image m on m.id = v.image_id
       where v.region_id = $1::uuid and ${after === null ? everything : 'v.change > $2::bigint order by v.change'}`,
      after === null ? [agent.region_id, next] : [agent.region_id, after.toString()],
    );
    const items = rows.map((row) => this.wanted(row));
    const more = after === null && rows.length === pageSize ? rows.at(-1)!.id : null;
    if (more === null) items.push(...(await this.backups(tx, agent.region_id, after)));
    const { skipped } = feed!;
    return { cursor: cursorOf(feed!), full: after === null, items, next: more, skipped };
  }

  /**
   * Backups that are to be made. One that has come to its end is of no interest any more, unless it was called off: an agent that died
   * before it could say so must be asked again. */
  private async backups(tx: Sql, regionId: string, after: bigint | null): Promise<Wanted[]> {
    const rows = await tx.query<BackupSpec & { id: string; generation: number; gone: boolean }>(
      `select b.id, b.generation, b.gone, b.account_id, b.vm_id from vm_backup b
       where b.region_id = $1::uuid and b.handed and ($2::bigint is null or b.change > $2::bigint)
         and (b.gone or b.phase in ('pending', 'creating'))
       order by b.created_at, b.id`,
      [regionId, after?.toString() ?? null],
    );
    return rows.map(({ id, generation, gone, ...spec }) => ({ kind: 'backup', id, generation, gone, spec }));
  }

  private wanted(row: Row): Wanted {
    const { id, generation, gone, image_id, filename, image_blob, restore, user_data, ...spec } = row;
    // What is to be removed needs no secrets any more.
    const text =
      user_data && !gone
        ? this.runtime.masterKey.open(Buffer.from(user_data), userDataContext(row.account_id, id))
        : null;
    return {
      kind: 'vm',
      id,
      generation,
      gone,
      spec: {
        ...spec,
        image: { id: image_id, filename, blob: blobOf(image_blob) },
        restore: restoreOf(restore),
        user_data: text,
      },
    };
  }
}

const blobOf = ({ sha256, bytes }: MaybeBlob): BlobRef | null => (sha256 === null ? null : { sha256, bytes });

function restoreOf({ number, blob }: Row['restore']): MachineSpec['restore'] {
  const found = blobOf(blob);
  return found && { number, blob: found };
}
