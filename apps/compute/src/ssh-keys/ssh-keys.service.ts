import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import {
  decide,
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  type V1SshKey,
  type V1SshKeyCreate,
} from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import {
  conflict,
  fieldError,
  forbidden,
  type IdempotentRequest,
  idOrNull,
  notFound,
  once,
  type OnceAnswer,
  pathId,
  referenceNotFound,
} from '@nebo/service-kit';
import { sayAct } from '../events.js';
import { visible } from '../shared/visible.js';
import { parsePublicKey, type PublicKey } from './public-key.js';

interface Row {
  id: string;
  name: string;
  public_key: string;
  fingerprint: string;
  created_at: Date;
}

const record = ({ created_at, ...row }: Row): V1SshKey => ({ ...row, created_at: created_at.toISOString() });

/** SSH keys of an account. A machine gets copies at its creation: deleting a key here changes no machine. */
@Injectable()
export class SshKeysService {
  constructor(private readonly database: Database) {}

  /** A page of the keys that the API key may see, oldest first. */
  list(caller: KeyIdentity, page: PageQuery): Promise<PageOf<V1SshKey>> {
    const seen = visible(caller, 'ssh_key:read', 'ssh_key');
    if (seen === null) return Promise.resolve(pageOf([], 0, page));
    return this.database.transaction(async (tx) => {
      const where = `account_id = $1::uuid and ($2::boolean or id = any($3::uuid[])) and id <> all($4::uuid[])`;
      const values = [caller.account_id, seen.allowProjects === null, seen.allowIds, seen.denyIds] as const;
      const [{ total } = { total: 0 }] = await tx.query<{ total: number }>(
        `select count(*)::int as total from ssh_key where ${where}`,
        values,
      );
      const rows = await tx.query<Row>(
        `select id, name, public_key, fingerprint, created_at from ssh_key where ${where}
         order by created_at, id limit $5::int offset $6::int`,
        [...values, page.limit, page.offset],
      );
      return pageOf(rows.map(record), total, page);
    }, caller.account_id);
  }

  /** @throws ApiError 404 */
  get(caller: KeyIdentity, id: string): Promise<V1SshKey> {
    const keyId = pathId(id);
    return this.database.transaction(async (tx) => {
      const [row] = await tx.query<Row>(
        'select id, name, public_key, fingerprint, created_at from ssh_key where id = $1::uuid and account_id = $2::uuid',
        [keyId, caller.account_id],
      );
      if (!row) throw notFound();
      return record(row);
    }, caller.account_id);
  }

  /**
   * Adds a key.
   * @throws ApiError 422 for what is no public key, 409 `ssh_key_exists` when the account has it already
   */
  create(
    caller: KeyIdentity,
    body: V1SshKeyCreate,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<V1SshKey>> {
    if (body.name.trim() === '') throw fieldError('name', 'must not be blank');
    const key = publicKey(body.public_key);
    return this.database.transaction(
      (tx) =>
        once(tx, idem, async () => {
          const id = randomUUID();
          const [row] = await tx.query<Row>(
            `insert into ssh_key (id, account_id, name, public_key, fingerprint) values ($1::uuid, $2::uuid, $3, $4, $5)
             on conflict (account_id, fingerprint) do nothing returning id, name, public_key, fingerprint, created_at`,
            [id, caller.account_id, body.name, key.line, key.fingerprint],
          );
          if (!row) throw conflict('ssh_key_exists', `the account has this key already (${key.fingerprint})`);
          const details = { name: row.name, fingerprint: row.fingerprint };
          await sayAct(
            tx,
            caller,
            'ssh_keys_create_ssh_key',
            { kind: 'ssh_key', id, project_id: null },
            details,
          );
          return { status: 201, body: record(row) };
        }),
      caller.account_id,
    );
  }

  /** @throws ApiError 404 */
  delete(caller: KeyIdentity, id: string): Promise<void> {
    const keyId = pathId(id);
    return this.database.transaction(async (tx) => {
      const [row] = await tx.query<{ name: string }>(
        'delete from ssh_key where id = $1::uuid and account_id = $2::uuid returning name',
        [keyId, caller.account_id],
      );
      if (!row) throw notFound();
      const on = { kind: 'ssh_key', id: keyId, project_id: null } as const;
      await sayAct(tx, caller, 'ssh_keys_delete_ssh_key', on, { name: row.name });
    }, caller.account_id);
  }

  /**
   * The lines of the keys that a body names.
   * @throws ApiError 404 naming the field for one that is absent, 403 for one that the API key may not see
   */
  async linesOf(tx: Sql, caller: KeyIdentity, wanted: readonly string[]): Promise<string[]> {
    const ids = wanted.map((text) => {
      const id = idOrNull(text);
      if (id === null) throw referenceNotFound('ssh_key_ids');
      return id;
    });
    if (ids.length === 0) return [];
    const rows = await tx.query<{ id: string; public_key: string }>(
      'select id, public_key from ssh_key where account_id = $1::uuid and id = any($2::uuid[])',
      [caller.account_id, ids],
    );
    const lines = new Map(rows.map(({ id, public_key }) => [id, public_key]));
    return [...new Set(ids)].map((id) => {
      const line = lines.get(id);
      if (line === undefined) throw referenceNotFound('ssh_key_ids');
      if (!decide(caller, 'ssh_key:read', { kind: 'ssh_key', id, project_id: null }))
        throw forbidden('ssh_key:read');
      return line;
    });
  }
}

function publicKey(text: string): PublicKey {
  try {
    return parsePublicKey(text);
  } catch (error) {
    throw fieldError('public_key', (error as Error).message);
  }
}
