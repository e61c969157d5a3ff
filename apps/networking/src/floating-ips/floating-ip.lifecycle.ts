import { say } from '@nebo/bus';
import { Injectable } from '@nestjs/common';
import {
  type Change,
  Lifecycle,
  minutes,
  type Outcome,
  seconds,
  State,
  type StepContext,
} from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { says } from '../events.js';
import { ageOf, type RegionView, regionView, type RegionWord, regionWord } from '../shared/region-word.js';
import {
  eraseFloatingIp,
  floatingIpColumns,
  floatingIpEvent,
  type FloatingIpRow,
  floatingIps,
  sayReleased,
} from './floating-ip.rows.js';
import { AddressPool } from './pool.js';

/** An address in a VPC as its life sees it. */
interface LivingAddress extends RegionView {
  /** It is wanted on a port. */
  bound: boolean;
  released: boolean;
  /** Milliseconds in its present state, by PostgreSQL's clock. */
  age_ms: number;
}

/** What the record shows of a state, and whether the address is wanted on a port then. */
const shown: Readonly<Record<string, { status: string; bound: boolean }>> = {
  attaching: { status: 'attaching', bound: true },
  attached: { status: 'attached', bound: true },
  error: { status: 'error', bound: true },
  detaching: { status: 'detaching', bound: false },
  unconfirmed: { status: 'error', bound: false },
};

/** Between the steps in which an address leaves a NAT gateway: longer than a client needs for the two reads of a look. */
export const pictureMs = seconds(2);

/**
 * Life of an address in a VPC: attaching → attached ⇄ error, from each of them detaching → end (available again), or
 * releasing → end (gone). It begins with each attach. What left a NAT gateway passes `leaving`. Nobody gets an address as long
 * as a region may have it: a silent one leads to `unconfirmed` or `stuck`, and its later word leads out.
 */
@Injectable()
export class FloatingIpLifecycle extends Lifecycle<LivingAddress> {
  override readonly kind = 'floating_ip';

  constructor(private readonly pool: AddressPool) {
    super();
  }

  override async load(tx: Sql, id: string): Promise<LivingAddress | null> {
    const [row] = await tx.query<LivingAddress>(
      `select f.id as fip_id, f.port_id is not null as bound, f.released_at is not null as released, ${ageOf('floating_ip')}, ${regionView}
       from floating_ip f left join vpc v on v.id = f.vpc_id where f.id = $1::uuid`,
      [id],
    );
    return row ?? null;
  }

  /** Shows in the row, unless what is wanted changed while the step ran: the API wrote the status of that already. */
  override async changed(tx: Sql, id: string, { to, reason }: Change): Promise<void> {
    const show = to === null ? undefined : shown[to];
    if (!show) return;
    await tx.query(
      `update floating_ip set status = $2, last_error = $3
       where id = $1::uuid and released_at is null and (port_id is not null) = $4`,
      [id, show.status, reason, show.bound],
    );
  }

  @State({ deadline: minutes(2), onMissed: 'error' })
  attaching(address: LivingAddress): Outcome {
    const said = regionWord(address);
    return this.turned(address) ?? this.judged(address, said) ?? this.wait(Infinity, reasonOf(said));
  }

  @State()
  attached(address: LivingAddress): Outcome {
    const said = regionWord(address);
    if (said.word === 'absent')
      return this.turned(address) ?? this.fail('the region has it no more', 'error');
    return this.turned(address) ?? (said.word === 'fault' ? this.judged(address, said)! : this.wait());
  }

  /** Wanted, but it does not work. The region goes on trying. */
  @State()
  error(address: LivingAddress, { reason }: StepContext): Outcome {
    const next = this.turned(address) ?? this.judged(address, regionWord(address));
    return next === null || (next.kind === 'fail' && next.reason === reason) ? this.wait() : next;
  }

  @State({ deadline: minutes(5), onMissed: 'unconfirmed' })
  detaching(address: LivingAddress): Outcome {
    const next = this.gone(address) ?? (address.released ? this.go('releasing') : null);
    return next ?? this.wait(Infinity, stillThere(address));
  }

  /** Not wanted any more, but the region does not say that it is gone. */
  @State()
  unconfirmed(address: LivingAddress): Outcome {
    return this.gone(address) ?? (address.released ? this.go('releasing') : this.wait());
  }

  @State({ deadline: minutes(5), onMissed: 'stuck' })
  releasing(address: LivingAddress): Outcome {
    return this.gone(address) ?? this.wait(Infinity, stillThere(address));
  }

  /** Released, but the region does not say that it is gone: held back from the pool, so that two never have one address. */
  @State()
  stuck(address: LivingAddress): Outcome {
    return this.gone(address) ?? this.wait();
  }

  /** It left a NAT gateway that is gone, and goes itself a moment later (4-client-behaviours.md, 3). */
  @State()
  leaving({ fip_id, age_ms }: LivingAddress): Outcome {
    return age_ms < pictureMs ? this.wait(pictureMs - age_ms) : this.end((tx) => this.left(tx, fip_id));
  }

  private turned({ bound, released }: LivingAddress): Outcome | null {
    if (released) return this.go('releasing');
    return bound ? null : this.go('detaching');
  }

  /** What a region's word means for an address that is wanted; null while there is none. */
  private judged({ fip_id }: LivingAddress, said: RegionWord): Outcome | null {
    if (said.word === 'fault') return this.fail(said.reason, 'error');
    return said.word === 'works' ? this.go('attached', (tx) => sayAttached(tx, fip_id)) : null;
  }

  /** The end, once the region does not have it. */
  private gone(address: LivingAddress): Outcome | null {
    if (regionWord(address).word === 'absent') return this.end((tx) => this.settle(tx, address.fip_id));
    return null;
  }

  private async settle(tx: Sql, id: string): Promise<void> {
    const [row] = await tx.query<FloatingIpRow & { released: boolean }>(
      `select ${floatingIpColumns}, f.released_at is not null as released from ${floatingIps}
       where f.id = $1::uuid for update of f`,
      [id],
    );
    // Released after this step has looked: then the same word of the region ends that.
    if (!row || row.released) return eraseFloatingIp(tx, this.pool, id);
    await tx.query(
      `update floating_ip set status = 'available', last_error = null, vpc_id = null, wanted_generation = null
       where id = $1::uuid`,
      [id],
    );
    await say(tx, says.floatingIpDetached(floatingIpEvent(row), { account: row.account_id }));
  }

  private async left(tx: Sql, id: string): Promise<void> {
    const [row] = await tx.query<FloatingIpRow>(
      `select ${floatingIpColumns} from ${floatingIps} where f.id = $1::uuid for update of f`,
      [id],
    );
    // Its owner may have released it in this moment.
    if (!row) return;
    await eraseFloatingIp(tx, this.pool, id);
    const by = { account_id: row.account_id, actor: 'service:networking' };
    await sayReleased(tx, by, row, 'its NAT gateway was disabled');
  }
}

const reasonOf = (said: RegionWord): string =>
  'reason' in said ? said.reason : 'the region does not have it yet';

/** What a detach or a release waits for. */
function stillThere(address: LivingAddress): string {
  const said = regionWord(address);
  return 'reason' in said ? said.reason : 'the region still has it';
}

async function sayAttached(tx: Sql, id: string): Promise<void> {
  const [row] = await tx.query<FloatingIpRow>(
    `select ${floatingIpColumns} from ${floatingIps} where f.id = $1::uuid and f.port_id is not null`,
    [id],
  );
  if (row) await say(tx, says.floatingIpAttached(floatingIpEvent(row), { account: row.account_id }));
}
