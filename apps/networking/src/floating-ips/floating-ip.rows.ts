import type { Envelope } from '@nebo/bus';
import { formatRubles, type V1FloatingIP } from '@nebo/contracts';
import { start, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { notFound, pathId } from '@nebo/service-kit';
import { type Actor, sayAct, says } from '../events.js';
import { nextGeneration } from '../vpcs/vpc.rows.js';
import type { MonthHeld } from './address-money.js';
import type { AddressPool } from './pool.js';

/** A row of `floating_ip` with the port that it is attached to. */
export interface FloatingIpRow {
  id: string;
  account_id: string;
  region_id: string;
  address: string;
  name: string | null;
  amount_per_month: string;
  created_at: Date;
  target_kind: 'interface' | 'vpc_nat';
  /** The network that has it, or may still have it. */
  vpc_id: string | null;
  port_id: string | null;
  auto_release: boolean;
  status: string;
  last_error: string | null;
  internal_address: string | null;
  /** `vm:<id>` of the port. */
  owner: string | null;
  project_id: string | null;
}

export const floatingIpColumns = `f.id, f.account_id, f.region_id, host(f.address) as address, f.name,
  f.amount_per_month::text as amount_per_month, f.created_at, f.target_kind, f.vpc_id, f.port_id, f.auto_release, f.status,
  f.last_error, host(p.address) as internal_address, p.owner, p.project_id`;

/** Where the columns come from. */
export const floatingIps = 'floating_ip f left join port p on p.id = f.port_id';

/** The machine that a port belongs to. */
export const vmOf = (owner: string | null): string | null =>
  owner?.startsWith('vm:') ? owner.slice('vm:'.length) : null;

/** A row as the contract's record. */
export function floatingIpRecord(row: FloatingIpRow): V1FloatingIP {
  const bound = row.port_id !== null;
  return {
    id: row.id,
    address: row.address,
    cluster_id: row.region_id,
    status: row.status,
    name: row.name,
    internal_address: row.internal_address,
    target_kind: row.target_kind,
    vm_id: vmOf(row.owner),
    vm_interface_id: row.port_id,
    vm_project_id: row.project_id,
    // An address on its way out of a network is shown in none, although the region may still have it there.
    vpc_id: bound || row.target_kind === 'vpc_nat' ? row.vpc_id : null,
    auto_release: row.auto_release,
    last_error: row.last_error,
    monthly_price: formatRubles(BigInt(row.amount_per_month)),
    created_at: row.created_at.toISOString(),
  };
}

/** The same as events tell it. */
export const floatingIpEvent = (row: FloatingIpRow) => ({
  fip_id: row.id,
  region_id: row.region_id,
  address: row.address,
  vpc_id: floatingIpRecord(row).vpc_id,
  vm_id: vmOf(row.owner),
  vm_interface_id: row.port_id,
});

/** @throws ApiError 404 when it is absent, another account's or released */
export async function findFloatingIp(tx: Sql, account: string, id: string): Promise<FloatingIpRow> {
  const [row] = await tx.query<FloatingIpRow>(
    `select ${floatingIpColumns} from ${floatingIps}
     where f.id = $1::uuid and f.account_id = $2::uuid and f.released_at is null`,
    [pathId(id), account],
  );
  if (!row) throw notFound();
  return row;
}

/** Has the acts on one address follow each other, until the transaction ends. Comes before any lock of a row. */
export async function holdFloatingIp(tx: Sql, id: string): Promise<void> {
  await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))::text as held', [
    `floating_ip|${id.toLowerCase()}`,
  ]);
}

/** Locks a VPC's row, the first of all rows that an act in it locks. @returns false when the VPC is gone or deleted */
export async function holdVpc(tx: Sql, vpcId: string): Promise<boolean> {
  const rows = await tx.query(
    'select 1 as held from vpc where id = $1::uuid and deleted_at is null for update',
    [vpcId],
  );
  return rows.length > 0;
}

/**
 * An address for an act on it: its own row and that of the VPC that has it are locked until the transaction ends.
 * @throws ApiError 404
 */
export async function lockFloatingIp(tx: Sql, account: string, id: string): Promise<FloatingIpRow> {
  await holdFloatingIp(tx, pathId(id));
  const { vpc_id } = await findFloatingIp(tx, account, id);
  if (vpc_id !== null) await holdVpc(tx, vpc_id);
  await tx.query('select 1 as held from floating_ip where id = $1::uuid for update', [pathId(id)]);
  // Read again: its life, or the end of its machine, may have been first.
  return findFloatingIp(tx, account, id);
}

/** What a new address is made of. */
export interface NewFloatingIp {
  id: string;
  account_id: string;
  region_id: string;
  address: string;
  name: string | null;
  /** The span of its charge. */
  span_id: string;
  money: MonthHeld;
}

/** Writes an address that was taken from the pool, and begins the span of its charge. */
export async function insertFloatingIp(tx: Sql, made: NewFloatingIp): Promise<void> {
  const { id, account_id, region_id, address, name, span_id, money } = made;
  await tx.query(
    `insert into floating_ip (id, account_id, region_id, address, name, amount_per_month)
     values ($1::uuid, $2::uuid, $3::uuid, $4::inet, $5, $6::numeric)`,
    [id, account_id, region_id, address, name, money.amount],
  );
  await tx.query(
    `insert into span (id, account_id, fip_id, address, reservation_id, amount_per_month, price_version)
     values ($1::uuid, $2::uuid, $3::uuid, $4::inet, $5::uuid, $6::numeric, $7::int)`,
    [span_id, account_id, id, address, money.reservation_id, money.amount, money.price_version],
  );
  await start(tx, 'span', span_id, 'opening');
}

/** Writes that an available address is wanted on a port, and begins the life of that. The VPC's row is locked. */
export async function bindFloatingIp(
  tx: Sql,
  id: string,
  port: { id: string; vpc_id: string },
  autoRelease: boolean,
): Promise<void> {
  const generation = await nextGeneration(tx, port.vpc_id);
  await tx.query(
    `update floating_ip set port_id = $2::uuid, vpc_id = $3::uuid, wanted_generation = $4::int, auto_release = $5,
       status = 'attaching', last_error = null where id = $1::uuid`,
    [id, port.id, port.vpc_id, generation, autoRelease],
  );
  await start(tx, 'floating_ip', id, 'attaching');
}

/** Writes that an attached address is not wanted on its port any more. Rows of VPC and address are locked. */
export async function unbindFloatingIp(tx: Sql, row: FloatingIpRow): Promise<void> {
  const generation = await nextGeneration(tx, row.vpc_id!);
  await tx.query(
    `update floating_ip set port_id = null, wanted_generation = $2::int, auto_release = false, status = 'detaching',
       last_error = null where id = $1::uuid`,
    [row.id, generation],
  );
  await wake(tx, 'floating_ip', row.id);
}

/** Ends the charge of an address, now; the first end counts. */
export async function endSpan(tx: Sql, fipId: string): Promise<void> {
  const rows = await tx.query<{ id: string }>(
    'update span set ended_at = now() where fip_id = $1::uuid and ended_at is null returning id',
    [fipId],
  );
  for (const { id } of rows) await wake(tx, 'span', id);
}

/**
 * Gives an address up: it is out of the account and costs nothing from now on. It goes back to the pool at once, or, while a
 * region may still have it, when that region says that it does not. Rows of VPC and address are locked.
 */
export async function releaseFloatingIp(
  tx: Sql,
  pool: AddressPool,
  by: Actor,
  row: FloatingIpRow,
  why?: string,
): Promise<void> {
  await endSpan(tx, row.id);
  if (row.vpc_id === null) await eraseFloatingIp(tx, pool, row.id);
  else {
    const generation = row.port_id === null ? null : await nextGeneration(tx, row.vpc_id);
    await tx.query(
      `update floating_ip set released_at = now(), port_id = null, wanted_generation = coalesce($2::int, wanted_generation)
       where id = $1::uuid`,
      [row.id, generation],
    );
    await wake(tx, 'floating_ip', row.id);
  }
  await sayReleased(tx, by, row, why);
}

/** The line in the audit log, and the event. */
export function sayReleased(tx: Sql, by: Actor, row: FloatingIpRow, why?: string): Promise<void> {
  const details = { address: row.address, name: row.name, ...(why === undefined ? {} : { why }) };
  const released: Envelope = says.floatingIpReleased(
    { ...floatingIpEvent(row), vpc_id: null, vm_id: null, vm_interface_id: null },
    { account: row.account_id },
  );
  return sayAct(tx, by, 'networking_delete_floating_ip', `floating_ip:${row.id}`, details, released);
}

/** Takes the last trace of an address away and gives it back to the pool; an order that comes again under its id makes nothing. */
export async function eraseFloatingIp(tx: Sql, pool: AddressPool, id: string): Promise<void> {
  await tx.query('delete from floating_ip where id = $1::uuid', [id]);
  await tx.query('insert into released_port (id) values ($1::uuid) on conflict do nothing', [id]);
  await pool.giveBack(tx, id);
}

/**
 * A port is about to be given back: an address that came with it is released, one that was attached by hand becomes available.
 * The VPC's row is locked.
 */
export async function freePort(tx: Sql, pool: AddressPool, by: Actor, portId: string): Promise<void> {
  const [row] = await tx.query<FloatingIpRow>(
    `select ${floatingIpColumns} from ${floatingIps} where f.port_id = $1::uuid for update of f`,
    [portId],
  );
  if (!row) return;
  if (row.auto_release) return releaseFloatingIp(tx, pool, by, row, 'what it came with is deleted');
  await unbindFloatingIp(tx, row);
  const details = {
    address: row.address,
    vm_interface_id: portId,
    why: 'what it was attached to is deleted',
  };
  await sayAct(tx, by, 'networking_detach_floating_ip', `floating_ip:${row.id}`, details);
}
