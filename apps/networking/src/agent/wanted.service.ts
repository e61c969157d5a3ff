import { Changes, cursorOf, Epochs, type Feed, numberAfter, Pace } from '@nebo/service-kit';
import { Injectable } from '@nestjs/common';
import type { AgentIdentity, VpcSpec, Wanted, WantedAnswer } from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { addressText, subnetOf } from '../vpcs/subnet.js';
import type { Topic } from '../shared/topics.js';

/** What was locked is looked at again after so many milliseconds, whether its holder says something or not. */
const skippedMs = 100;

/** VPCs in a page of a full answer. */
const pageSize = 200;

interface WantedRow {
  id: string;
  account_id: string;
  generation: number;
  gone: boolean;
  subnet: string;
  ports: VpcSpec['ports'];
  floating_ips: VpcSpec['floating_ips'];
  nat: VpcSpec['nat'];
}

/** What a region shall make so: VPCs with their ports, floating IPs and gateway. */
@Injectable()
export class WantedService {
  private readonly pace = new Pace();

  constructor(
    private readonly database: Database,
    private readonly changes: Changes<Topic>,
    private readonly epochs: Epochs,
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
    const rows = await tx.query<WantedRow>(
      `select v.id, v.account_id, v.generation, v.deleted_at is not null as gone, v.subnet::text as subnet,
         coalesce((select json_agg(json_build_object('id', p.id, 'mac', p.mac::text, 'address', host(p.address)) order by p.address)
           from port p where p.vpc_id = v.id and p.bound_to is null), '[]') as ports,
         coalesce((select json_agg(json_build_object('id', f.id, 'address', host(f.address), 'port_id', f.port_id) order by f.address)
           from floating_ip f where f.vpc_id = v.id and f.port_id is not null), '[]') as floating_ips,
         (select json_build_object('id', g.fip_id, 'address', host(g.address))
           from nat_gateway g where g.vpc_id = v.id and g.enabled) as nat
       from vpc v where v.region_id = $1::uuid and ${
         after === null
           ? `($2::uuid is null or v.id > $2::uuid) order by v.id limit ${pageSize}`
           : 'v.change > $2::bigint order by v.change'
       }`,
      after === null ? [agent.region_id, next] : [agent.region_id, after.toString()],
    );
    const more = after === null && rows.length === pageSize ? rows.at(-1)!.id : null;
    const { skipped } = feed!;
    return { cursor: cursorOf(feed!), full: after === null, items: rows.map(wantedVpc), next: more, skipped };
  }
}

function wantedVpc({ id, generation, gone, ...row }: WantedRow): Wanted {
  const gateway = addressText(subnetOf(row.subnet)!.gateway);
  const { account_id, subnet, ports, floating_ips, nat } = row;
  return {
    kind: 'vpc',
    id,
    generation,
    gone,
    spec: { account_id, subnet, gateway, ports, floating_ips, nat },
  };
}
