import { randomUUID } from 'node:crypto';
import type { V1Certificate } from '@nebo/contracts';
import { start, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import type { Proof } from '../domains/domain.rows.js';

/** One name of an order that is to be proven. */
export interface OrderedChallenge {
  /** Address of the challenge. */
  url: string;
  authorization: string;
  token: string;
}

/** An order under way, as the database keeps it. */
export interface StoredOrder {
  url: string;
  type: 'http-01' | 'dns-01';
  challenges: OrderedChallenge[];
  /** Values of the TXT record, for dns-01. */
  texts: string[];
  /** The authority was told to look. */
  responded: boolean;
  /** Sealed key of the certificate to come, base64. */
  sealed_key: string;
}

/** A certificate as its lifecycle sees it. */
export interface CertificateRow {
  id: string;
  account_id: string;
  domain_id: string;
  host: string;
  domains: string[];
  status: string;
  challenge_type: string | null;
  not_before: Date | null;
  not_after: Date | null;
  acme_order: StoredOrder | null;
  /** Milliseconds until it may be tried again; null: now. */
  retry_in: number | null;
  proof: Proof | null;
  verified: boolean;
}

/** What a sealed key is bound to. */
export const keyContext = (account: string, id: string): string => `certificate|${account}|${id}`;

/** Null when its domain is gone or being removed. */
export async function loadCertificate(tx: Sql, id: string): Promise<CertificateRow | null> {
  const [row] = await tx.query<CertificateRow>(
    `select c.id, c.account_id, c.domain_id, d.host, c.domains, c.status, c.challenge_type, c.not_before, c.not_after, c.acme_order,
       (extract(epoch from c.retry_at - now()) * 1000)::float8 as retry_in, d.proof, d.verified_at is not null as verified
     from certificate c join app_domain d on d.id = c.domain_id and d.deleted_at is null where c.id = $1::uuid`,
    [id],
  );
  return row ?? null;
}

/** Sees to it that an owned domain has a certificate, now or soon. */
export async function ensureCertificate(tx: Sql, domain: { id: string }): Promise<void> {
  const [made] = await tx.query<{ id: string }>(
    `insert into certificate (id, account_id, domain_id, primary_domain, domains)
     select $1::uuid, account_id, id, host, array[host] from app_domain
     where id = $2::uuid and verified_at is not null and deleted_at is null
     on conflict (domain_id) do nothing returning id`,
    [randomUUID(), domain.id],
  );
  if (made) await start(tx, 'certificate', made.id, 'ordering');
}

/** What kept it away may be over: the pause ends now. */
export async function retryCertificate(tx: Sql, domain: { id: string }): Promise<void> {
  const [row] = await tx.query<{ id: string }>(
    'update certificate set retry_at = null, failures = 0 where domain_id = $1::uuid returning id',
    [domain.id],
  );
  if (row) await wake(tx, 'certificate', row.id);
}

export interface CertificateRecordRow {
  id: string;
  primary_domain: string;
  domains: string[];
  status: string;
  challenge_type: string | null;
  not_before: Date | null;
  not_after: Date | null;
  created_at: Date;
}

/** A row as the contract's record. */
export function certificateRecord(row: CertificateRecordRow): V1Certificate {
  return {
    id: row.id,
    primary_domain: row.primary_domain,
    domains: row.domains,
    status: row.status,
    challenge_type: row.challenge_type,
    not_before: row.not_before?.toISOString() ?? null,
    not_after: row.not_after?.toISOString() ?? null,
    created_at: row.created_at.toISOString(),
  };
}
