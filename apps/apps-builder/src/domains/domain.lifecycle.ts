import { Injectable } from '@nestjs/common';
import { say } from '@nebo/bus';
import type { DomainStatusEvent, ManagedDeleted, ManagedDeleteRequest } from '@nebo/contracts';
import { Lifecycle, type Outcome, State } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { Peers } from '@nebo/service-kit';
import { ensureCertificate, retryCertificate } from '../certificates/certificate.rows.js';
import { says } from '../events.js';
import { Settings } from '../shared/settings.js';
import { DomainProof, type Finding } from './domain-proof.js';
import { type DomainRow, dropName, loadDomain, takeName } from './domain.rows.js';

/** Longest pause between two checks of a claim, milliseconds. */
const longestPause = 3_600_000;

/** What a domain shows. */
interface Shown {
  status: DomainStatusEvent['status'];
  error: string | null;
  dns_configured: boolean;
}

/**
 * Life of a custom domain: checking → serving, back when its owner no longer shows that it is theirs, → removing. Every step
 * looks at the world anew and makes of it what is missing: the address record, the ownership, the route, the certificate.
 */
@Injectable()
export class DomainLifecycle extends Lifecycle<DomainRow> {
  override readonly kind = 'domain';

  constructor(
    private readonly database: Database,
    private readonly peers: Peers,
    private readonly proof: DomainProof,
    private readonly settings: Settings,
  ) {
    super();
  }

  override load(tx: Sql, id: string): Promise<DomainRow | null> {
    return loadDomain(tx, id);
  }

  /** Nothing has been shown yet, or no longer. */
  @State()
  async checking(domain: DomainRow): Promise<Outcome> {
    if (domain.deleted) return this.go('removing');
    if (domain.verified) return this.go('serving');
    const finding = await this.proof.look(domain);
    const { proof } = finding;
    if (proof !== null && (await this.database.transaction((tx) => takeName(tx, domain, proof))))
      return this.go('serving');
    const error =
      proof === null
        ? finding.reason
        : 'another account here is the owner of the name; a TXT record shows that it is yours: ' +
          `${this.proof.text(domain.account_id, domain.host)} at _nebo-challenge`;
    const status = proof === null ? 'pending' : 'error';
    await this.show(domain, { status, error, dns_configured: false }, domain.checks + 1);
    const pause = Math.min(longestPause, this.settings.domainCheckMs * 2 ** Math.min(domain.checks, 20));
    return this.wait(pause, error ?? 'not shown yet');
  }

  /** The name leads to its app. The proof is looked at now and then, and whenever somebody else claims the name. */
  @State()
  async serving(domain: DomainRow): Promise<Outcome> {
    if (domain.deleted) return this.go('removing');
    if (!domain.verified) return this.go('checking');
    const finding = await this.proof.look(domain);
    const lost = finding.proof === null && !finding.unknown;
    if (lost && domain.contested) {
      // Who has nothing to show makes room for who may have.
      await this.database.transaction((tx) => dropName(tx, domain));
      return this.go('checking');
    }
    await this.database.transaction(async (tx) => {
      if (finding.proof !== null)
        await tx.query(
          `update app_domain set proof = $2, proven_at = now() where id = $1::uuid and verified_at is not null`,
          [domain.id, finding.proof],
        );
      if (finding.proof !== null && finding.proof !== domain.proof && domain.certificate?.error)
        await retryCertificate(tx, domain);
      if (!domain.skip_certificate && finding.points) await ensureCertificate(tx, domain);
    });
    const fresh = await this.database.transaction((tx) => loadDomain(tx, domain.id));
    if (!fresh) return this.end();
    await this.show(fresh, shownOf(fresh, finding), 0);
    return this.wait(this.pauseOf(fresh, finding), finding.reason ?? 'leads here');
  }

  /** Takes away what was put into DNS; a dns that is away is asked again until it answers. */
  @State()
  async removing(domain: DomainRow): Promise<Outcome> {
    const owners = [
      `app_domain:${domain.id}`,
      ...(domain.certificate ? [`certificate:${domain.certificate.id}`] : []),
    ];
    for (const owner of owners) {
      const body: ManagedDeleteRequest = { account_id: domain.account_id, owner };
      await this.peers.call<ManagedDeleted>('dns', '/internal/v1/records/delete-managed', {
        account: domain.account_id,
        body,
      });
    }
    return this.end((tx) =>
      tx.query('delete from app_domain where id = $1::uuid and deleted_at is not null', [domain.id]),
    );
  }

  /** Soon while something is missing that the owner is at work on, else rarely. */
  private pauseOf(domain: DomainRow, { reason, unknown }: Finding): number {
    const soon = Math.min(this.settings.domainAgainMs, this.settings.domainCheckMs * 6);
    if (unknown) return soon;
    return reason === null || domain.status === 'active' ? this.settings.domainAgainMs : soon;
  }

  /** Writes what the owner sees; says it when the status is another one. */
  private async show(domain: DomainRow, shown: Shown, checks: number): Promise<void> {
    await this.database.transaction(async (tx) => {
      const [before] = await tx.query<{ status: string }>(
        'select status from app_domain where id = $1::uuid and deleted_at is null for update',
        [domain.id],
      );
      if (!before) return;
      await tx.query(
        `update app_domain set status = $2, error = $3, dns_configured = $4, checks = $5::int, target_ip = $6,
           certificate_id = (select id from certificate where domain_id = app_domain.id) where id = $1::uuid`,
        [domain.id, shown.status, shown.error, shown.dns_configured, checks, this.settings.targetIp],
      );
      if (before.status === shown.status) return;
      const { id, app_id, host, account_id } = domain;
      const { status, error } = shown;
      await say(
        tx,
        says.domainStatus({ domain_id: id, app_id, host, status, error }, { account: account_id }),
      );
    });
  }
}

/** What an owned domain shows: what is to be done in DNS comes first, then the certificate. */
export function shownOf(domain: DomainRow, finding: Finding): Shown {
  const dns_configured = finding.unknown ? domain.dns_configured : finding.managed;
  const was = domain.status === 'active';
  if (!finding.points && !finding.unknown)
    // It did lead here: it goes on being served, for those who still come.
    return { status: was ? 'active' : 'pending', error: finding.reason, dns_configured };
  const { certificate } = domain;
  if (domain.skip_certificate || certificate?.has)
    return { status: 'active', error: certificate?.error ?? null, dns_configured };
  if (certificate?.error) return { status: 'error', error: certificate.error, dns_configured };
  return { status: 'pending', error: 'the certificate is being ordered', dns_configured };
}
