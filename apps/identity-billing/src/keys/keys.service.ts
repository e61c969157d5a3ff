import { randomUUID } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import {
  checkPolicy,
  keyForm,
  type KeyResolveAnswer,
  type Nano,
  type PolicyStatement,
} from '@nebo/contracts';
import { Database, prismaSql } from '@nebo/persistence';
import { conflict, fieldError, notFound, referenceNotFound, RUNTIME, type Runtime } from '@nebo/service-kit';
import { AuditService } from '../audit/audit.service.js';
import { asUuid } from '../database/ids.js';
import { PrismaService, type Tx } from '../database/prisma.service.js';
import { Prisma } from '../generated/prisma/client.js';
import { MembersService } from '../members/members.service.js';
import { Settings } from '../settings.js';
import { sayKeyChanged } from './key-events.js';
import { identityOf, type KeyRecord, keyRecord, type ResolvedRow } from './key.mapper.js';

/** What a new key shall be. */
export interface NewKey {
  account: string;
  name: string;
  actor: string;
  /** Member who issues it; the account's owner when absent. */
  issuer?: string;
}

export interface NewControlKey extends NewKey {
  policy: PolicyStatement[];
  /** Null: no allow-list. */
  projects: string[] | null;
}

export interface NewInferenceKey extends NewKey {
  /** 10⁻⁹ rubles per calendar month (UTC); null: no limit. */
  monthlyLimit: Nano | null;
  /** Null: every model. */
  models: string[] | null;
}

/** A key just made: the only time that the key itself is seen. */
export type CreatedKey = KeyRecord & { key: string };

export type KeyKind = 'control' | 'inference';

/** States by the verb that leads there. A revoked key stays revoked. */
const stateOf = { revoke: 'revoked', disable: 'disabled', enable: 'active' } as const;
export type KeyVerb = keyof typeof stateOf;

/** Keys of both doors. What the database holds of a key is its keyed hash, a prefix and the last four characters. */
@Injectable()
export class KeysService {
  constructor(
    private readonly prisma: PrismaService,
    private readonly database: Database,
    private readonly members: MembersService,
    private readonly audit: AuditService,
    private readonly settings: Settings,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  /**
   * Mints a control key.
   * @throws ApiError 404 for an unknown account, member or project; 422 for a wrong policy
   */
  createControl(wanted: NewControlKey): Promise<CreatedKey> {
    checkedPolicy(wanted.policy);
    return this.create('control', wanted, async (tx) => ({
      policy: wanted.policy as unknown as Prisma.InputJsonValue,
      project_ids:
        wanted.projects === null
          ? Prisma.DbNull
          : await this.checkedProjects(tx, wanted.account, wanted.projects),
    }));
  }

  /** Mints an inference key. @throws ApiError 404 for an unknown account or member */
  createInference(wanted: NewInferenceKey): Promise<CreatedKey> {
    return this.create('inference', wanted, async () => ({
      monthly_limit: wanted.monthlyLimit,
      models: wanted.models ?? Prisma.DbNull,
    }));
  }

  private async create(
    kind: KeyKind,
    wanted: NewKey,
    attributes: (tx: Tx) => Promise<Partial<Prisma.ApiKeyUncheckedCreateInput>>,
  ): Promise<CreatedKey> {
    const prefix = kind === 'control' ? this.settings.keyPrefix : this.settings.inferenceKeyPrefix;
    const key = keyForm(prefix).generate();
    const row = await this.prisma.forAccount(wanted.account, async (tx) => {
      const issuer = wanted.issuer ?? (await this.members.ownerOf(tx, wanted.account));
      if (wanted.issuer && !(await tx.member.findUnique({ where: { id: wanted.issuer } })))
        throw referenceNotFound('member');
      const made = await tx.apiKey.create({
        data: {
          id: randomUUID(),
          account_id: wanted.account,
          kind,
          name: wanted.name,
          hash: new Uint8Array(this.runtime.masterKey.hashKey(key)),
          prefix: key.slice(0, prefix.length + 4),
          last_four: key.slice(-4),
          issuer_id: issuer,
          ...(await attributes(tx)),
        },
      });
      await this.audit.write(prismaSql(tx), {
        account: wanted.account,
        actor: wanted.actor,
        action: `${kind === 'control' ? 'key' : 'inference-key'} create`,
        resource: `key:${made.id}`,
        details: { name: wanted.name, prefix: made.prefix, last_four: made.last_four },
      });
      return made;
    });
    return { ...keyRecord(row), key };
  }

  private async checkedProjects(tx: Tx, account: string, projects: string[]): Promise<string[]> {
    const ids = [...new Set(projects.map((id) => asUuid(id) ?? ''))];
    if (ids.includes('')) throw referenceNotFound('projects');
    const known = await tx.project.count({ where: { account_id: account, id: { in: ids } } });
    if (known !== ids.length) throw referenceNotFound('projects');
    return ids;
  }

  /**
   * Revokes, disables or enables a key; a repeat changes nothing.
   * @throws ApiError 404 for an unknown key or one of the other kind; 409 `key_revoked` when a revoked one shall come back
   */
  setState(kind: KeyKind, id: string, verb: KeyVerb, actor: string): Promise<KeyRecord> {
    return this.change(kind, id, `${verb}`, actor, (state) => {
      if (state === 'revoked' && verb !== 'revoke')
        throw conflict('key_revoked', 'a revoked key cannot be used again; make a new one');
      if (state === stateOf[verb]) return null;
      return { state: stateOf[verb], ...(verb === 'revoke' ? { revoked_at: new Date() } : {}) };
    });
  }

  /**
   * Gives a control key another policy and allow-list.
   * @throws ApiError 404; 409 `key_revoked`; 422 for a wrong policy
   */
  setPolicy(
    id: string,
    policy: PolicyStatement[],
    projects: string[] | null,
    actor: string,
  ): Promise<KeyRecord> {
    checkedPolicy(policy);
    return this.change('control', id, 'policy', actor, async (state, tx, account) => {
      if (state === 'revoked') throw conflict('key_revoked', 'the key is revoked');
      return {
        policy: policy as unknown as Prisma.InputJsonValue,
        project_ids: projects === null ? Prisma.DbNull : await this.checkedProjects(tx, account, projects),
      };
    });
  }

  /** One change of a key with its event and audit row; `work` answers null when there is nothing to do. */
  private async change(
    kind: KeyKind,
    id: string,
    action: string,
    actor: string,
    work: (
      state: string,
      tx: Tx,
      account: string,
    ) => Prisma.ApiKeyUncheckedUpdateInput | null | Promise<Prisma.ApiKeyUncheckedUpdateInput | null>,
  ): Promise<KeyRecord> {
    const keyId = asUuid(id);
    if (!keyId) throw referenceNotFound('key');
    return this.prisma.forAccount('system', async (tx) => {
      const sql = prismaSql(tx);
      // Two changes of one key take turns, so that none overwrites a revocation.
      await sql.query('select id from api_key where id = $1::uuid for update', [keyId]);
      const key = await tx.apiKey.findUnique({ where: { id: keyId } });
      if (!key || key.kind !== kind) throw referenceNotFound('key');
      const data = await work(key.state, tx, key.account_id);
      if (data === null) return keyRecord(key);
      const changed = await tx.apiKey.update({
        where: { id: keyId },
        data: { ...data, version: { increment: 1 } },
      });
      await sayKeyChanged(sql, changed);
      await this.audit.write(sql, {
        account: key.account_id,
        actor,
        action: `${kind === 'control' ? 'key' : 'inference-key'} ${action}`,
        resource: `key:${keyId}`,
      });
      return keyRecord(changed);
    });
  }

  /** Keys of an account, oldest first; revoked ones too, since their spending stays readable. */
  async list(account: string): Promise<KeyRecord[]> {
    const rows = await this.prisma.forAccount(account, (tx) =>
      tx.apiKey.findMany({ where: { account_id: account }, orderBy: [{ created_at: 'asc' }, { id: 'asc' }] }),
    );
    return rows.map(keyRecord);
  }

  /**
   * Whose key it is: the read of every request that the gateway has not in memory.
   * @param hash keyed hash of the key, base64url
   * @throws ApiError 404 when it is unknown, revoked or disabled, or its account is gone
   */
  async resolve(hash: string): Promise<KeyResolveAnswer> {
    const bytes = Buffer.from(hash, 'base64url');
    const [row] = await this.database.named<ResolvedRow>('key-resolve', 'select * from key_resolve($1)', [
      bytes,
    ]);
    if (!row) throw notFound();
    return { key_kind: row.kind, identity: identityOf(row), version: row.version };
  }
}

function checkedPolicy(policy: PolicyStatement[]): void {
  try {
    checkPolicy(policy);
  } catch (error) {
    throw fieldError('policy', (error as Error).message);
  }
}
