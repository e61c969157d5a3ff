import { Injectable } from '@nestjs/common';
import { decide, type KeyIdentity, type Owner } from '@nebo/contracts';
import { ApiError, badRequest, forbidden, idOrNull, Peers, referenceNotFound } from '@nebo/service-kit';

/** VPCs that bodies name. */
@Injectable()
export class VpcReferences {
  constructor(private readonly peers: Peers) {}

  /**
   * The VPC that an app of a region is to be in.
   * @returns its id as it is kept
   * @throws ApiError 404 naming the field for one that is absent or another account's, 403 without `vpc:read`, 400
   *   `vpc_region_mismatch` for one of another region, 503 when networking does not answer
   */
  async admit(caller: KeyIdentity, vpcId: string, regionId: string): Promise<string> {
    const id = idOrNull(vpcId);
    const owner = id === null ? null : await this.ownerOf(id);
    if (id === null || owner?.account_id !== caller.account_id) throw referenceNotFound('vpc_id');
    if (!decide(caller, 'vpc:read', { kind: 'vpc', id, project_id: null })) throw forbidden('vpc:read');
    if (owner.region_id !== regionId)
      throw badRequest(
        'vpc_region_mismatch',
        'vpc_id: the VPC lies in another region than the app; an app stays in the region that it was made in',
      );
    return id;
  }

  private async ownerOf(id: string): Promise<Owner | null> {
    try {
      return await this.peers.call<Owner>('networking', `/internal/v1/owners/vpc/${id}`, { account: null });
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return null;
      throw error;
    }
  }
}
