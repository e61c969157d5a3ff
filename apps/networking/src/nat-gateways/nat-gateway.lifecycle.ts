import { say } from '@nebo/bus';
import { Injectable } from '@nestjs/common';
import {
  type Change,
  Lifecycle,
  minutes,
  type Outcome,
  start,
  State,
  type StepContext,
} from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { says } from '../events.js';
import { pictureMs } from '../floating-ips/floating-ip.lifecycle.js';
import { ageOf, type RegionView, regionView, regionWord } from '../shared/region-word.js';

/** A gateway as its life sees it. */
interface LivingGateway extends RegionView {
  id: string;
  account_id: string;
  vpc_id: string;
  address: string;
  enabled: boolean;
  /** Milliseconds in its present state, by PostgreSQL's clock. */
  age_ms: number;
}

/** What the record shows of a state, and whether the gateway is wanted then. */
const shown: Readonly<Record<string, { status: string; enabled: boolean }>> = {
  attaching: { status: 'attaching', enabled: true },
  attached: { status: 'attached', enabled: true },
  error: { status: 'error', enabled: true },
  detaching: { status: 'detaching', enabled: false },
  stuck: { status: 'error', enabled: false },
  leaving: { status: 'detaching', enabled: false },
};

/**
 * Life of a NAT gateway: attaching → attached ⇄ error, from each of them detaching → leaving → end. While it leaves, clients
 * look at VPC and address one after the other, and no pair of looks may contradict itself (4-client-behaviours.md, 3): first the
 * address is nobody's, then the gateway is gone, then the address, each long enough for two reads in either order.
 */
@Injectable()
export class NatGatewayLifecycle extends Lifecycle<LivingGateway> {
  override readonly kind = 'nat_gateway';

  override async load(tx: Sql, id: string): Promise<LivingGateway | null> {
    const [row] = await tx.query<LivingGateway>(
      `select f.id, f.account_id, f.vpc_id, f.fip_id, host(f.address) as address, f.enabled, ${ageOf('nat_gateway')}, ${regionView}
       from nat_gateway f left join vpc v on v.id = f.vpc_id where f.id = $1::uuid`,
      [id],
    );
    return row ?? null;
  }

  /** Shows in the rows of gateway and address, unless the gateway was disabled while the step ran. */
  override async changed(tx: Sql, id: string, { to, reason }: Change): Promise<void> {
    const show = to === null ? undefined : shown[to];
    if (!show) return;
    await tx.query(
      `with g as (
         update nat_gateway set status = $2, last_error = $3 where id = $1::uuid and enabled = $4 returning fip_id)
       update floating_ip f set status = $2, last_error = $3 from g where f.id = g.fip_id`,
      [id, show.status, reason, show.enabled],
    );
  }

  @State({ deadline: minutes(2), onMissed: 'error' })
  attaching(gateway: LivingGateway): Outcome {
    const said = regionWord(gateway);
    const why = 'reason' in said ? said.reason : 'the region does not have it yet';
    return this.judged(gateway) ?? this.wait(Infinity, why);
  }

  @State()
  attached(gateway: LivingGateway): Outcome {
    const { word } = regionWord(gateway);
    if (gateway.enabled && word === 'works') return this.wait();
    if (gateway.enabled && word === 'absent') return this.fail('the region has it no more', 'error');
    return this.judged(gateway) ?? this.wait();
  }

  /** Wanted, but it does not work. The region goes on trying. */
  @State()
  error(gateway: LivingGateway, { reason }: StepContext): Outcome {
    const next = this.judged(gateway);
    return next === null || (next.kind === 'fail' && next.reason === reason) ? this.wait() : next;
  }

  @State({ deadline: minutes(5), onMissed: 'stuck' })
  detaching(gateway: LivingGateway): Outcome {
    const said = regionWord(gateway);
    const why = 'reason' in said ? said.reason : 'the region still has it';
    return this.gone(gateway) ?? this.wait(Infinity, why);
  }

  /** Disabled, but the region does not say that it is gone: gateway and address stay, so that nobody else gets the address. */
  @State()
  stuck(gateway: LivingGateway): Outcome {
    return this.gone(gateway) ?? this.wait();
  }

  /** The address is shown as nobody's; the gateway goes a moment later, and the address after it. */
  @State()
  leaving(gateway: LivingGateway): Outcome {
    if (gateway.age_ms < pictureMs) return this.wait(pictureMs - gateway.age_ms);
    return this.end((tx) => left(tx, gateway));
  }

  /** What a region's word means for a gateway that is wanted; null while there is none. */
  private judged(gateway: LivingGateway): Outcome | null {
    if (!gateway.enabled) return this.go('detaching');
    const said = regionWord(gateway);
    if (said.word === 'fault') return this.fail(said.reason, 'error');
    return said.word === 'works'
      ? this.go('attached', (tx) => sayOf(tx, gateway, 'natGatewayAttached'))
      : null;
  }

  private gone(gateway: LivingGateway): Outcome | null {
    if (regionWord(gateway).word !== 'absent') return null;
    return this.go('leaving', (tx) =>
      tx.query(
        `update floating_ip set target_kind = 'interface', vpc_id = null, wanted_generation = null where id = $1::uuid`,
        [gateway.fip_id],
      ),
    );
  }
}

/** The gateway and its port are gone; the address follows in a life of its own. */
async function left(tx: Sql, gateway: LivingGateway): Promise<void> {
  const { id, vpc_id, fip_id } = gateway;
  await tx.query('select 1 as held from vpc where id = $1::uuid for update', [vpc_id]);
  await tx.query('delete from nat_gateway where id = $1::uuid', [id]);
  await tx.query('delete from port where id = $1::uuid', [id]);
  await start(tx, 'floating_ip', fip_id, 'leaving');
  await sayOf(tx, gateway, 'natGatewayDetached');
}

function sayOf(
  tx: Sql,
  { account_id, vpc_id, fip_id, address }: LivingGateway,
  event: 'natGatewayAttached' | 'natGatewayDetached',
): Promise<void> {
  return say(tx, says[event]({ vpc_id, fip_id, address }, { account: account_id }));
}
