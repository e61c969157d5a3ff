import { Injectable } from '@nestjs/common';
import type { PortAddressesRequest, PortClaimRequest, PortInfo, PortReleaseRequest } from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { ApiError, badRequest, canonical, conflict, fieldError, referenceNotFound } from '@nebo/service-kit';
import { freePort } from '../floating-ips/floating-ip.rows.js';
import { AddressPool } from '../floating-ips/pool.js';
import type { VpcRow } from '../vpcs/vpc.mapper.js';
import { defaultVpc } from '../vpcs/vpc.rows.js';
import { VpcsService } from '../vpcs/vpcs.service.js';
import {
  canonicalMac,
  insertAtLowest,
  insertPort,
  type NewPort,
  portColumns,
  portInfo,
  type PortRow,
} from './port.rows.js';

/** Ports of VPCs, for the services that put something on them (libs/contracts/src/internal/ports.ts). */
@Injectable()
export class PortsService {
  constructor(
    private readonly database: Database,
    private readonly vpcs: VpcsService,
    private readonly pool: AddressPool,
  ) {}

  /**
   * Claims a port; a repeat answers what the first answered.
   * @throws ApiError see `PortClaimRequest`
   */
  async claim(request: PortClaimRequest): Promise<PortInfo> {
    const { operation_id, account_id, kind, owner } = request;
    const address = request.address ?? null;
    const mac = request.mac == null ? null : canonicalMac(request.mac);
    const content = canonical({
      kind,
      owner,
      vpc_id: request.vpc_id?.toLowerCase() ?? null,
      region_id: request.region_id?.toLowerCase() ?? null,
      address,
      mac,
    });
    const project_id = request.project_id ?? null;
    const given = { account_id, kind, owner, name: null, address, mac, project_id };
    const port: NewPort = { id: operation_id, ...given, request: content };
    const claimed = (inSteps: boolean) =>
      this.database.transaction(async (tx) => {
        // All that is asked first goes in one round trip, under the lock that is taken before it.
        const held = holdOperation(tx, operation_id);
        const before = this.known(tx, operation_id, content);
        const home = request.vpc_id === null ? null : this.vpcOf(tx, request);
        home?.catch(() => undefined);
        const [known] = await Promise.all([before, held]);
        if (known) return known;
        const vpc = await (home ?? this.vpcOf(tx, request));
        if (inSteps || address !== null || mac !== null) return portInfo(await insertPort(tx, vpc, port));
        const [row] = await Promise.all([insertAtLowest(tx, vpc, port), tx.commit()]);
        return row && portInfo(row);
      }, account_id);
    // Nothing was written: the steps say why, or find a way.
    return (await claimed(false)) ?? (await claimed(true))!;
  }

  /**
   * Gives a port back; what was claimed under this id or still arrives under it makes nothing more. Its floating IP goes with
   * it when it came with it.
   * @param by name of the service that gives it back
   */
  async release({ operation_id, account_id }: PortReleaseRequest, by: string): Promise<void> {
    await this.database.transaction(async (tx) => {
      await holdOperation(tx, operation_id);
      // The row of the VPC first, as a claim does: two orders of locks would meet in a deadlock.
      const held = await tx.query(
        'select 1 as held from vpc where id = (select vpc_id from port where id = $1::uuid and account_id = $2::uuid) for update',
        [operation_id, account_id],
      );
      if (held.length > 0)
        await freePort(tx, this.pool, { account_id, actor: `service:${by}` }, operation_id);
      await tx.query('delete from port where id = $1::uuid and account_id = $2::uuid', [
        operation_id,
        account_id,
      ]);
      // Another account's port goes on living, and its owner can still release it.
      await tx.query('insert into released_port (id) values ($1::uuid) on conflict do nothing', [
        operation_id,
      ]);
    }, account_id);
  }

  /** Ports of an account by id, in no order; unknown ones are left out. */
  async addresses({ account_id, ids }: PortAddressesRequest): Promise<PortInfo[]> {
    const rows = await this.database.transaction(
      (tx) =>
        tx.query<PortRow>(
          `select ${portColumns} from port p join vpc v on v.id = p.vpc_id
           where p.id = any($1::uuid[]) and p.account_id = $2::uuid`,
          [ids, account_id],
        ),
      account_id,
    );
    return rows.map(portInfo);
  }

  private async known(tx: Sql, id: string, content: string): Promise<PortInfo | null> {
    const [[row], released] = await Promise.all([
      tx.query<PortRow & { request: unknown }>(
        `select ${portColumns}, p.request from port p join vpc v on v.id = p.vpc_id where p.id = $1::uuid`,
        [id],
      ),
      tx.query('select 1 as released from released_port where id = $1::uuid', [id]),
    ]);
    if (row) {
      if (canonical(row.request) !== content)
        throw conflict('operation_reused', 'this operation id was used with another content');
      return portInfo(row);
    }
    if (released.length > 0)
      throw conflict('already_released', 'this port was given back; a new one needs a new id');
    return null;
  }

  /** The VPC of a claim, its row held until the transaction ends. */
  private async vpcOf(tx: Sql, request: PortClaimRequest): Promise<VpcRow> {
    const { account_id, vpc_id } = request;
    const regionId = request.region_id?.toLowerCase() ?? null;
    if (vpc_id === null) {
      if (regionId === null) throw fieldError('region_id', 'is needed without vpc_id');
      return defaultVpc(tx, account_id, regionId);
    }
    const vpc = await this.vpcs.find(tx, account_id, vpc_id, true).catch((error: unknown) => {
      throw error instanceof ApiError && error.status === 404 ? referenceNotFound('vpc_id') : error;
    });
    if (regionId !== null && regionId !== vpc.region_id)
      throw badRequest('vpc_region_mismatch', 'vpc_id: the VPC lies in another region');
    return vpc;
  }
}

/** Claims and releases of one id follow each other. */
export async function holdOperation(tx: Sql, id: string): Promise<void> {
  await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))::text as held', [`port|${id}`]);
}
