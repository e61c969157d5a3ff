import { Inject, Injectable } from '@nestjs/common';
import type { ManagedPut, ManagedPutRequest } from '@nebo/contracts';
import { ApiError, Peers, RUNTIME, type Runtime } from '@nebo/service-kit';
import { Settings } from '../shared/settings.js';
import { baseName, challengeName, challengeText, isWildcard } from './domain-name.js';
import type { DomainRow, Proof } from './domain.rows.js';
import { NameLookup, type SeenAddresses } from './name-lookup.js';

/** What was found out about a name. */
export interface Finding {
  /** The strongest that is shown now; null: nothing. */
  proof: Proof | null;
  /** Visitors come here. */
  points: boolean;
  /** Its zone is ours and its address record is made by us. */
  managed: boolean;
  /** Nothing could be learned: what was true before stays true. */
  unknown: boolean;
  /** What is left to do, for the owner; null: nothing. */
  reason: string | null;
}

/** Seconds of the address records that the platform makes: an address may move within minutes. */
const ttl = 300;

const foundIn = ({ four, six }: SeenAddresses): string[] => [...(four ?? []), ...(six ?? [])];

/** Shows whose a name is and whether it leads here: by a zone of the account, a TXT record, or its addresses. */
@Injectable()
export class DomainProof {
  constructor(
    private readonly peers: Peers,
    private readonly names: NameLookup,
    private readonly settings: Settings,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'masterKey'>,
  ) {}

  /** What the TXT record of an account's name must say. */
  text(account: string, host: string): string {
    return challengeText(this.runtime.masterKey.derive('domain-challenge'), account, host);
  }

  /** Does the TXT record of an account stand in the DNS? Null: nothing could be learned. */
  async hasText(account: string, host: string): Promise<boolean | null> {
    const texts = await this.names.texts(challengeName(host));
    return texts?.includes(this.text(account, host)) ?? null;
  }

  /**
   * Puts the address record where the zone is the account's, and looks.
   * @throws ApiError when dns is away
   */
  async look(domain: DomainRow): Promise<Finding> {
    const zone = await this.putAddresses(domain);
    if (zone.active) return { proof: 'zone', points: true, managed: true, unknown: false, reason: null };
    // Any label below a wildcard shows where all of them lead.
    const probe = isWildcard(domain.host) ? `nebo-check.${baseName(domain.host)}` : domain.host;
    const [text, seen] = await Promise.all([
      this.hasText(domain.account_id, domain.host),
      this.names.addresses(probe),
    ]);
    const addresses = this.whole(seen);
    const points = foundIn(seen).some((address) => this.settings.edgeAddresses.includes(address));
    const proof = text === true ? 'txt' : points ? 'address' : null;
    return {
      proof,
      points,
      managed: false,
      unknown: proof === null && (text === null || addresses === null),
      reason: points ? null : [zone.reason, this.advice(domain, addresses, proof)].filter(Boolean).join('; '),
    };
  }

  /** What was found, or null when there may be more: nothing could be learned of a family that visitors come in by. */
  private whole(seen: SeenAddresses): string[] | null {
    const { edgeAddresses } = this.settings;
    const lacks = edgeAddresses.some((address) => (address.includes(':') ? seen.six : seen.four) === null);
    return lacks ? null : foundIn(seen);
  }

  /** Which record is to be set. */
  private advice(domain: DomainRow, found: readonly string[] | null, proof: Proof | null): string {
    const { host, account_id } = domain;
    const seen =
      found === null
        ? ' (the resolver does not answer)'
        : found.length > 0
          ? ` (it leads to ${found.slice(0, 4).join(', ')} now)`
          : '';
    const kind = this.settings.targetIp.includes(':') ? 'AAAA' : 'A';
    const record = `set an ${kind} record of ${host} to ${this.settings.targetIp}${seen}`;
    if (proof === 'txt') return record;
    return `${record}; to show that the name is yours before it leads here, set a TXT record of ${challengeName(host)} to ${this.text(account_id, host)}`;
  }

  private async putAddresses(domain: DomainRow): Promise<{ active: boolean; reason: string | null }> {
    const { edgeAddresses } = this.settings;
    let put: ManagedPut | null = null;
    try {
      for (const [type, contents] of [
        ['A', edgeAddresses.filter((address) => !address.includes(':'))],
        ['AAAA', edgeAddresses.filter((address) => address.includes(':'))],
      ] as const) {
        if (contents.length === 0) continue;
        const body: ManagedPutRequest = {
          account_id: domain.account_id,
          owner: `app_domain:${domain.id}`,
          name: `${domain.host}.`,
          type,
          contents,
          ttl,
          ...(domain.override_dns ? { override: true } : {}),
        };
        put = await this.peers.call<ManagedPut>('dns', '/internal/v1/records/put-managed', {
          account: domain.account_id,
          body,
        });
      }
    } catch (error) {
      if (!(error instanceof ApiError) || error.status >= 500) throw error;
      if (error.code === 'dns_record_conflict')
        return {
          active: false,
          reason: `${error.message}; delete them, or add the domain with override_dns`,
        };
      if (['no_zone', 'already_released'].includes(error.code)) return { active: false, reason: null };
      return { active: false, reason: error.message };
    }
    if (put === null || put.zone_status === 'active') return { active: put !== null, reason: null };
    return {
      active: false,
      reason: `the zone ${put.zone_name} is ours but not delegated to our name servers yet: delegate it and verify it`,
    };
  }
}
