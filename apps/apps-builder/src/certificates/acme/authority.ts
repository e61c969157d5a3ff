import { createPrivateKey, type KeyObject } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Inject, Injectable } from '@nestjs/common';
import { Database } from '@nebo/persistence';
import { AllowList, createSafeClient } from '@nebo/safe-net';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { Settings } from '../../shared/settings.js';
import { type AcmeAccount, AcmeClient } from './acme-client.js';
import { AcmeError } from './acme-error.js';
import { newKeyPem } from './jws.js';

interface AccountRow {
  sealed_key: Uint8Array;
  url: string | null;
}

/** The certificate authority of this installation, and its account there. */
@Injectable()
export class Authority {
  /** Null: none is configured; the edge makes certificates by its own CA. */
  readonly client: AcmeClient | null;
  private readonly directory: string;

  constructor(
    private readonly database: Database,
    private readonly settings: Settings,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'masterKey'>,
  ) {
    const { acmeDirectory, acmeCaFile } = settings;
    this.directory = acmeDirectory ?? '';
    if (acmeDirectory === null) {
      this.client = null;
      return;
    }
    const { hostname, port } = new URL(acmeDirectory);
    this.client = new AcmeClient(
      createSafeClient({
        // What the operator configures is allowed by that, private or not.
        allow: new AllowList([[hostname.replace(/^\[|\]$/g, ''), Number(port || 443)]]),
        httpsOnly: true,
        userAgent: 'nebo',
        ...(acmeCaFile === null ? {} : { ca: readFileSync(acmeCaFile) }),
      }),
      acmeDirectory,
    );
  }

  /**
   * Works with the account, which is registered first where that is still to be done. An authority that has forgotten the
   * account is told of it again, once.
   * @throws AcmeError
   */
  async with<T>(work: (client: AcmeClient, account: AcmeAccount) => Promise<T>): Promise<T> {
    const { client } = this;
    if (client === null) throw new AcmeError('refused', 'no certificate authority is configured');
    const account = await this.account(client);
    try {
      return await work(client, account);
    } catch (error) {
      if (!(error instanceof AcmeError) || error.failure !== 'unknown_account') throw error;
      await this.write('update acme_account set url = null where directory = $1 and url = $2', account.url!);
      return work(client, await this.account(client));
    }
  }

  /** Milliseconds until the authority may be asked for another certificate. */
  async pausedFor(): Promise<number> {
    const [row] = await this.database.transaction((tx) =>
      tx.query<{ left: number }>(
        `select (extract(epoch from paused_until - now()) * 1000)::float8 as left from acme_account
         where directory = $1 and paused_until > now()`,
        [this.directory],
      ),
    );
    return row?.left ?? 0;
  }

  /** The authority asked to come later. */
  async pause(ms: number): Promise<void> {
    await this.database.transaction((tx) =>
      tx.query(
        `update acme_account set paused_until = greatest(paused_until, now() + $2::float8 * interval '1 millisecond')
         where directory = $1`,
        [this.directory, ms],
      ),
    );
  }

  private async account(client: AcmeClient): Promise<AcmeAccount> {
    const row = await this.row();
    const key = this.open(row);
    if (row.url !== null) return { key, url: row.url };
    const { acmeEmail, acmeBinding } = this.settings;
    const url = await client.register(key, acmeEmail, acmeBinding);
    await this.write('update acme_account set url = $2 where directory = $1', url);
    return { key, url };
  }

  /** Made once: of two that start at the same time both go on with the first one's key. */
  private row(): Promise<AccountRow> {
    return this.database.transaction(async (tx) => {
      const read = () =>
        tx.query<AccountRow>('select sealed_key, url from acme_account where directory = $1', [
          this.directory,
        ]);
      const [known] = await read();
      if (known) return known;
      await tx.query(
        'insert into acme_account (directory, sealed_key) values ($1, $2) on conflict (directory) do nothing',
        [this.directory, this.runtime.masterKey.seal(newKeyPem(), this.context)],
      );
      return (await read())[0]!;
    });
  }

  private open({ sealed_key }: AccountRow): KeyObject {
    return createPrivateKey(this.runtime.masterKey.open(sealed_key, this.context));
  }

  private get context(): string {
    return `acme|${this.directory}`;
  }

  private async write(statement: string, url: string): Promise<void> {
    await this.database.transaction((tx) => tx.query(statement, [this.directory, url]));
  }
}
