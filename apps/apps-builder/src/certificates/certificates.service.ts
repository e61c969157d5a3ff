import { Inject, Injectable, type OnApplicationBootstrap } from '@nestjs/common';
import {
  type AcmeChallengeAnswer,
  type CertificateBytes,
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  toFilter,
  type V1Certificate,
} from '@nebo/contracts';
import { wakeAll } from '@nebo/lifecycle';
import { Database } from '@nebo/persistence';
import { idOrNull, notFound, pathId, RUNTIME, type Runtime } from '@nebo/service-kit';
import { domainName } from '../domains/domain-name.js';
import { Authority } from './acme/authority.js';
import { certificateRecord, type CertificateRecordRow, keyContext } from './certificate.rows.js';

const ids = (texts: readonly string[]): string[] => texts.map(idOrNull).filter((id) => id !== null);

/** Certificates: what their owners may read, and what the edge needs. */
@Injectable()
export class CertificatesService implements OnApplicationBootstrap {
  constructor(
    private readonly database: Database,
    private readonly authority: Authority,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'masterKey'>,
  ) {}

  /** Names whose certificates the edge has made so far get one of the authority, now that one is configured. */
  async onApplicationBootstrap(): Promise<void> {
    if (this.authority.client === null) return;
    await this.database.transaction(async (tx) => {
      const rows = await tx.query<{ id: string }>(
        "select id from certificate where status = 'issued' and fingerprint is null order by id for update",
      );
      await wakeAll(
        tx,
        'certificate',
        rows.map(({ id }) => id),
      );
    });
  }

  /**
   * A page of what the key may see, oldest first.
   * @param domain only certificates for this name, in either spelling; null: all
   */
  async list(caller: KeyIdentity, domain: string | null, page: PageQuery): Promise<PageOf<V1Certificate>> {
    const filter = toFilter(caller, 'certificate:read', 'certificate');
    if (!filter.any) return pageOf([], 0, page);
    const where = `account_id = $1::uuid and ($2::uuid[] is null or id = any($2::uuid[])) and id <> all($3::uuid[])
      and ($4::text is null or $4 = any(domains))
      and exists (select 1 from app_domain d where d.id = certificate.domain_id and d.deleted_at is null)`;
    const values = [
      caller.account_id,
      filter.allowProjects === null ? null : ids(filter.allowIds),
      ids(filter.denyIds),
      domain === null ? null : (domainName(domain) ?? domain),
    ];
    return this.database.transaction(async (tx) => {
      const [counted] = await tx.query<{ total: number }>(
        `select count(*)::int as total from certificate where ${where}`,
        values,
      );
      const rows = await tx.query<CertificateRecordRow>(
        `select id, primary_domain, domains, status, challenge_type, not_before, not_after, created_at
         from certificate where ${where} order by created_at, id limit $5::int offset $6::int`,
        [...values, page.limit, page.offset],
      );
      return pageOf(rows.map(certificateRecord), counted!.total, page);
    }, caller.account_id);
  }

  /** A certificate with its key, for the edge only. @throws ApiError 404 */
  async bytes(id: string): Promise<CertificateBytes> {
    const [row] = await this.database.transaction((tx) =>
      tx.query<{
        id: string;
        account_id: string;
        fingerprint: string;
        chain: string;
        sealed_key: Uint8Array;
      }>(
        `select id, account_id, fingerprint, chain, sealed_key from certificate
         where id = $1::uuid and fingerprint is not null`,
        [pathId(id)],
      ),
    );
    if (!row) throw notFound();
    const { account_id, sealed_key, ...rest } = row;
    return { ...rest, key: this.runtime.masterKey.open(sealed_key, keyContext(account_id, row.id)) };
  }

  /** What an authority is to be answered. @throws ApiError 404 when nothing is being ordered for the name */
  async challenge(host: string, token: string): Promise<AcmeChallengeAnswer> {
    const [row] = await this.database.transaction((tx) =>
      tx.query<AcmeChallengeAnswer>('select answer from acme_challenge where token = $1 and host = $2', [
        token,
        host.toLowerCase(),
      ]),
    );
    if (!row) throw notFound();
    return row;
  }
}
