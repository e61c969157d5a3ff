import { createPrivateKey } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import type { ManagedDeleteRequest, ManagedPutRequest } from '@nebo/contracts';
import {
  type Change,
  hours,
  Lifecycle,
  minutes,
  type Outcome,
  seconds,
  State,
  type StepContext,
  wake,
} from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { Peers, RUNTIME, type Runtime } from '@nebo/service-kit';
import { baseName, isWildcard } from '../domains/domain-name.js';
import { NameLookup } from '../domains/name-lookup.js';
import { Settings } from '../shared/settings.js';
import { AcmeError, sentenceOf } from './acme/acme-error.js';
import { Authority } from './acme/authority.js';
import { certificateRequest, checkChain, type IssuedChain } from './acme/csr.js';
import { dnsAuthorization, keyAuthorization, newKeyPem } from './acme/jws.js';
import { type CertificateRow, keyContext, loadCertificate, type StoredOrder } from './certificate.rows.js';

/** Between two looks at what the authority is doing. */
const pollMs = 500;
/** How long a TXT record may take until it is seen; a cache may keep its absence, so the authority is told after that. */
const visibleMs = 10_000;
/** Longest pause after failures in a row, milliseconds. */
const longestPause = 86_400_000;
/** Pause when an authority says "later" and not when. */
const usualPause = 3_600_000;

/**
 * Life of a certificate: ordering → publishing → proving → finalizing → issued, and round again when a third of its life is
 * left; failed in between, with a pause that grows. Each step is one or two short exchanges whose result is kept, so a
 * process that dies costs no second order, and a slow authority holds up nobody else.
 */
@Injectable()
export class CertificateLifecycle extends Lifecycle<CertificateRow> {
  override readonly kind = 'certificate';

  constructor(
    private readonly database: Database,
    private readonly authority: Authority,
    private readonly names: NameLookup,
    private readonly peers: Peers,
    private readonly settings: Settings,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'masterKey'>,
  ) {
    super();
  }

  override load(tx: Sql, id: string): Promise<CertificateRow | null> {
    return loadCertificate(tx, id);
  }

  /** A failure is shown, and counted for the pause before the next attempt. What serves goes on serving. */
  override async changed(tx: Sql, id: string, { to, reason }: Change): Promise<void> {
    if (to !== 'failed') return;
    const [row] = await tx.query<{ domain_id: string }>(
      `update certificate set status = case when fingerprint is null then 'error' else 'issued' end, error = $2,
         acme_order = null, failures = failures + 1,
         retry_at = greatest(retry_at, now() + least($3::float8, $4::float8 * 2 ^ least(failures, 20)) * interval '1 millisecond')
       where id = $1::uuid returning domain_id`,
      [id, `no certificate: ${reason ?? 'it took too long'}`, longestPause, this.settings.acmeRetryMs],
    );
    await tx.query('delete from acme_challenge where certificate_id = $1::uuid', [id]);
    if (row) await wake(tx, 'domain', row.domain_id);
  }

  @State()
  async ordering(row: CertificateRow): Promise<Outcome> {
    if (!row.verified) return this.wait(hours(6), 'the name is not shown to be its owner’s');
    if (this.authority.client === null) return this.go('issued', (tx) => this.keepLocal(tx, row));
    const type = row.proof === 'zone' ? 'dns-01' : 'http-01';
    if (isWildcard(row.host) && type !== 'dns-01')
      return this.fail('for all names below a domain its zone must be in the DNS of this account', 'failed');
    const paused = await this.authority.pausedFor();
    if (paused > 0) return this.wait(paused, 'the certificate authority asked to come later');
    return this.asking(async () => {
      const { order, answers } = await this.begin(row, type);
      return this.go('publishing', async (tx) => {
        await tx.query(
          'update certificate set acme_order = $2::jsonb, challenge_type = $3 where id = $1::uuid',
          [row.id, JSON.stringify(order), type],
        );
        for (const { token, answer } of answers)
          await tx.query(
            `insert into acme_challenge (token, account_id, certificate_id, host, answer)
             values ($1, $2::uuid, $3::uuid, $4, $5) on conflict (token) do nothing`,
            [token, row.account_id, row.id, baseName(row.host), answer],
          );
      });
    });
  }

  /** The edge answers by itself; a TXT record has to be made and seen. */
  @State({ deadline: minutes(5), onMissed: 'failed' })
  async publishing(row: CertificateRow, { enteredAt }: StepContext): Promise<Outcome> {
    const order = row.acme_order;
    if (order === null) return this.go('ordering');
    if (order.type === 'dns-01' && order.texts.length > 0) {
      const name = `_acme-challenge.${baseName(row.host)}`;
      const body: ManagedPutRequest = {
        account_id: row.account_id,
        owner: `certificate:${row.id}`,
        name: `${name}.`,
        type: 'TXT',
        contents: order.texts,
        ttl: 60,
      };
      await this.peers.call('dns', '/internal/v1/records/put-managed', { account: row.account_id, body });
      const seen = await this.names.texts(name);
      const visible = order.texts.every((text) => seen?.includes(text));
      if (!visible && Date.now() - enteredAt.getTime() < visibleMs)
        return this.wait(pollMs, 'its TXT record is not seen yet');
    }
    return this.go('proving');
  }

  @State({ deadline: minutes(5), onMissed: 'failed' })
  proving(row: CertificateRow): Promise<Outcome> {
    const order = row.acme_order;
    if (order === null) return Promise.resolve(this.go('ordering'));
    return this.asking(() =>
      this.authority.with(async (client, account) => {
        if (!order.responded) {
          for (const { url } of order.challenges) await client.respond(account, url);
          await this.database.transaction((tx) =>
            tx.query(
              `update certificate set acme_order = jsonb_set(acme_order, '{responded}', 'true') where id = $1::uuid`,
              [row.id],
            ),
          );
        }
        for (const challenge of order.challenges) {
          const { status, name, challenges } = await client.authorization(account, challenge.authorization);
          if (status === 'valid') continue;
          if (status === 'pending' || status === 'processing')
            return this.wait(pollMs, 'the certificate authority is looking');
          const tried = challenges.find(({ token }) => token === challenge.token);
          return this.fail(sentenceOf(tried?.error, `${name} was not shown (${status})`), 'failed');
        }
        return this.go('finalizing');
      }),
    );
  }

  @State({ deadline: minutes(5), onMissed: 'failed' })
  finalizing(row: CertificateRow): Promise<Outcome> {
    const stored = row.acme_order;
    if (stored === null) return Promise.resolve(this.go('ordering'));
    const key = this.openKey(row, Buffer.from(stored.sealed_key, 'base64'));
    return this.asking(() =>
      this.authority.with(async (client, account) => {
        let order = await client.order(account, stored.url);
        if (order.status === 'ready')
          order = await client.finalize(account, order, await certificateRequest(key, row.domains));
        if (order.status === 'processing' || order.status === 'pending')
          return this.wait(pollMs, 'the certificate authority is at work');
        if (order.status !== 'valid' || order.certificate === null)
          return this.fail(sentenceOf(order.error, `the order is ${order.status}`), 'failed');
        const chain = await client.chain(account, order.certificate);
        let issued: IssuedChain;
        try {
          issued = checkChain(chain, key, row.domains);
        } catch (error) {
          return this.fail((error as Error).message, 'failed');
        }
        return this.go('issued', (tx) => this.keep(tx, row, stored, chain, issued));
      }),
    );
  }

  @State()
  async issued(row: CertificateRow): Promise<Outcome> {
    await this.clean(row);
    const { not_before, not_after } = row;
    if (not_before === null || not_after === null)
      // Made by the edge, until an authority is configured: who starts with one wakes those (`CertificatesService`).
      return this.authority.client === null ? this.wait(Infinity, 'the edge makes it') : this.go('ordering');
    if (!row.verified) return this.wait(hours(6), 'the name is not its owner’s any more');
    const life = not_after.getTime() - not_before.getTime();
    const left = not_after.getTime() - life / 3 - Date.now();
    return left > 0 ? this.wait(Math.max(left, pollMs), 'valid') : this.go('ordering');
  }

  @State()
  async failed(row: CertificateRow): Promise<Outcome> {
    await this.clean(row);
    const left = row.retry_in ?? 0;
    return left > 0 ? this.wait(Math.max(left, pollMs)) : this.go('ordering');
  }

  /** What an authority has against an order becomes the reason that the owner reads. */
  private async asking(work: () => Promise<Outcome>): Promise<Outcome> {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof AcmeError)) throw error;
      const { failure, message, retryAfterMs } = error;
      if (failure !== 'limited') return this.fail(message, 'failed');
      const pause = Math.min(longestPause, Math.max(seconds(1), retryAfterMs ?? usualPause));
      await this.authority.pause(pause);
      return this.fail(message, 'failed');
    }
  }

  /** Makes an order, and what has to be shown for it. */
  private async begin(row: CertificateRow, type: StoredOrder['type']) {
    const key = newKeyPem();
    return this.authority.with(async (client, account) => {
      const order = await client.newOrder(account, row.domains);
      const stored: StoredOrder = {
        url: order.url,
        type,
        challenges: [],
        texts: [],
        responded: false,
        sealed_key: this.runtime.masterKey.seal(key, keyContext(row.account_id, row.id)).toString('base64'),
      };
      const answers: { token: string; answer: string }[] = [];
      for (const url of order.authorizations) {
        const { status, name, challenges } = await client.authorization(account, url);
        // Shown a short time ago: authorities remember it.
        if (status === 'valid') continue;
        const challenge = challenges.find((one) => one.type === type);
        if (!challenge) throw new AcmeError('refused', `no ${type} challenge is offered for ${name}`);
        stored.challenges.push({ url: challenge.url, authorization: url, token: challenge.token });
        if (type === 'dns-01') stored.texts.push(dnsAuthorization(account.key, challenge.token));
        else answers.push({ token: challenge.token, answer: keyAuthorization(account.key, challenge.token) });
      }
      return { order: stored, answers };
    });
  }

  private async keep(tx: Sql, row: CertificateRow, order: StoredOrder, chain: string, issued: IssuedChain) {
    await tx.query(
      `update certificate set status = 'issued', error = null, chain = $2, sealed_key = $3, fingerprint = $4,
         not_before = $5, not_after = $6, failures = 0, retry_at = null, acme_order = null where id = $1::uuid`,
      [
        row.id,
        chain,
        Buffer.from(order.sealed_key, 'base64'),
        issued.fingerprint,
        issued.notBefore,
        issued.notAfter,
      ],
    );
    await tx.query('delete from acme_challenge where certificate_id = $1::uuid', [row.id]);
    await tx.query(
      `update route set certificate_fingerprint = $3 where host = $1
         and app_id = (select app_id from app_domain where id = $2::uuid)`,
      [row.host, row.domain_id, issued.fingerprint],
    );
    await wake(tx, 'domain', row.domain_id);
  }

  /** Whatever an authority gave before is let go of: nobody would renew it, and the edge shows its own where there is none. */
  private async keepLocal(tx: Sql, row: CertificateRow) {
    await tx.query(
      `update certificate set status = 'issued', error = null, challenge_type = null, chain = null, sealed_key = null,
         fingerprint = null, not_before = null, not_after = null, failures = 0, retry_at = null, acme_order = null
       where id = $1::uuid`,
      [row.id],
    );
    await tx.query('update route set certificate_fingerprint = null where host = $1', [row.host]);
    await wake(tx, 'domain', row.domain_id);
  }

  private openKey(row: CertificateRow, sealed: Buffer): string {
    const pem = this.runtime.masterKey.open(sealed, keyContext(row.account_id, row.id));
    createPrivateKey(pem);
    return pem;
  }

  /** Takes the TXT record of an order away; it is in nobody's way for longer than needed. */
  private async clean(row: CertificateRow): Promise<void> {
    if (row.challenge_type !== 'dns-01') return;
    const body: ManagedDeleteRequest = {
      account_id: row.account_id,
      owner: `certificate:${row.id}`,
      name: `_acme-challenge.${baseName(row.host)}.`,
      type: 'TXT',
    };
    await this.peers.call('dns', '/internal/v1/records/delete-managed', { account: row.account_id, body });
  }
}
