import type { V1AppDomain } from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { baseName, isWildcard } from './domain-name.js';

/** How an owner has shown that a name is theirs, the weakest first. */
export const proofs = ['address', 'txt', 'zone', 'platform'] as const;
export type Proof = (typeof proofs)[number];

/** A custom domain as its lifecycle sees it. */
export interface DomainRow {
  id: string;
  account_id: string;
  app_id: string;
  host: string;
  status: string;
  error: string | null;
  dns_configured: boolean;
  certificate_id: string | null;
  override_dns: boolean;
  skip_certificate: boolean;
  verified: boolean;
  proof: Proof | null;
  checks: number;
  deleted: boolean;
  /** Somebody else claims the same name. */
  contested: boolean;
  certificate: { id: string; status: string; error: string | null; has: boolean } | null;
}

/** Columns of the contract's record. */
export const recordColumns =
  'id, app_id, host, status, type, is_default, build_id, dns_configured, target_ip, certificate_id, error, created_at';

export interface DomainRecordRow {
  id: string;
  app_id: string;
  host: string;
  status: string;
  type: string;
  is_default: boolean;
  build_id: string | null;
  dns_configured: boolean;
  target_ip: string | null;
  certificate_id: string | null;
  error: string | null;
  created_at: Date;
}

/** A row as the contract's record. @param port where visitors come in over TLS */
export function domainRecord(row: DomainRecordRow, port: number): V1AppDomain {
  return {
    id: row.id,
    app_id: row.app_id,
    domain: row.host,
    url: row.host.startsWith('*.') ? null : `https://${row.host}${port === 443 ? '' : `:${port}`}`,
    status: row.status,
    type: row.type,
    is_default: row.is_default,
    build_id: row.build_id,
    dns_configured: row.dns_configured,
    target_ip: row.target_ip,
    certificate_id: row.certificate_id,
    error: row.error,
    created_at: row.created_at.toISOString(),
  };
}

export async function loadDomain(tx: Sql, id: string): Promise<DomainRow | null> {
  const [row] = await tx.query<DomainRow>(
    `select d.id, d.account_id, d.app_id, d.host, d.status, d.error, d.dns_configured, d.certificate_id, d.override_dns,
       d.skip_certificate, d.verified_at is not null as verified, d.proof, d.checks, d.deleted_at is not null as deleted,
       exists (select 1 from app_domain o where o.host = d.host and o.id <> d.id and o.deleted_at is null) as contested,
       (select jsonb_build_object('id', c.id, 'status', c.status, 'error', c.error, 'has', c.status = 'issued' or c.fingerprint is not null)
        from certificate c where c.domain_id = d.id) as certificate
     from app_domain d where d.id = $1::uuid and not d.is_default`,
    [id],
  );
  return row ?? null;
}

/**
 * Takes the custom domains of an app away, in the transaction that deletes the app: unlisted and free at once, their
 * records in DNS follow.
 */
export async function releaseDomains(tx: Sql, appId: string): Promise<void> {
  const rows = await tx.query<{ id: string }>(
    `update app_domain set deleted_at = now(), verified_at = null
     where app_id = $1::uuid and not is_default and deleted_at is null returning id`,
    [appId],
  );
  for (const { id } of rows) await wake(tx, 'domain', id);
}

/** Holds a name until the transaction ends: who owns it is decided by one at a time. */
export async function holdName(tx: Sql, host: string): Promise<void> {
  await tx.query("select pg_advisory_xact_lock(hashtextextended('domain:' || $1, 0))::text as held", [host]);
}

/**
 * Makes a domain the owner of its name, and leads the name to its app in the same transaction: the edge sees the old owner or
 * the new one. A proof that is stronger than the present owner's takes over; an equal or weaker one has the owner looked
 * at again. Where a name leads says nothing below a wildcard of another account (every name there leads here by that), nor where
 * a wildcard leads that lies around names of another account.
 * @returns false when another one stays the owner, or the domain is deleted
 */
export async function takeName(tx: Sql, domain: DomainRow, proof: Proof): Promise<boolean> {
  await holdName(tx, domain.host);
  const [holder] = await tx.query<{ id: string; proof: Proof }>(
    'select id, proof from app_domain where host = $1 and verified_at is not null and id <> $2::uuid',
    [domain.host, domain.id],
  );
  if (holder) {
    const wakes = proofs.indexOf(proof) <= proofs.indexOf(holder.proof);
    if (!wakes)
      await tx.query(
        `update app_domain set verified_at = null, proof = null, status = 'error', checks = 0,
           error = 'another account has shown that the name is its own' where id = $1::uuid`,
        [holder.id],
      );
    await wake(tx, 'domain', holder.id);
    if (wakes) return false;
  }
  if (proof === 'address' && (await isAmongAnothers(tx, domain))) return false;
  const taken = await tx.query(
    `update app_domain set verified_at = coalesce(verified_at, now()), proof = $2, proven_at = now(), checks = 0
     where id = $1::uuid and deleted_at is null returning 1 as taken`,
    [domain.id, proof],
  );
  if (taken.length === 0) return false;
  await tx.query(
    `insert into route (host, account_id, app_id, build_id, target)
     select d.host, d.account_id, d.app_id, r.build_id, r.target
     from app_domain d join app_domain own on own.app_id = d.app_id and own.is_default
       join route r on r.host = own.host and r.removed_at is null
     where d.id = $1::uuid
     on conflict (host) do update set account_id = excluded.account_id, app_id = excluded.app_id, build_id = excluded.build_id,
       target = excluded.target, removed_at = null
     where (route.app_id, route.removed_at) is distinct from (excluded.app_id, null::timestamptz)`,
    [domain.id],
  );
  // Another account's route must not stay where this app has none yet.
  await tx.query(
    'update route set removed_at = now() where host = $1 and app_id <> $2::uuid and removed_at is null',
    [domain.host, domain.app_id],
  );
  await wake(tx, 'rollout', domain.app_id);
  if (domain.certificate) await wake(tx, 'certificate', domain.certificate.id);
  return true;
}

/**
 * Does a name lie below a wildcard of another account, or would it, as a wildcard, lie around its names? In the DNS a wildcard
 * stands for any number of labels.
 */
async function isAmongAnothers(tx: Sql, { host, account_id }: DomainRow): Promise<boolean> {
  const base = baseName(host);
  const labels = base.split('.');
  const wildcards = labels.slice(1).map((_, index) => `*.${labels.slice(index + 1).join('.')}`);
  const rows = await tx.query(
    `select 1 as found from app_domain where verified_at is not null and account_id <> $2::uuid
       and (host = any($1::text[]) or ($3::boolean and (host = $4 or right(host, length($4) + 1) = '.' || $4))) limit 1`,
    [wildcards, account_id, isWildcard(host), base],
  );
  return rows.length > 0;
}

/** Gives a name up again: nothing leads here any more. */
export async function dropName(tx: Sql, domain: DomainRow): Promise<void> {
  await holdName(tx, domain.host);
  await tx.query('update app_domain set verified_at = null, proof = null where id = $1::uuid', [domain.id]);
  await tx.query(
    'update route set removed_at = now() where host = $1 and app_id = $2::uuid and removed_at is null',
    [domain.host, domain.app_id],
  );
}
