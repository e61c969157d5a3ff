import { createHmac } from 'node:crypto';
import type { KeyIdentity } from '@nebo/contracts';
import type { Database, Sql } from '@nebo/persistence';
import { ApiError, badRequest } from './errors.js';
import type { MasterKey } from './secrets.js';

/** A POST that carries an `Idempotency-Key`. */
export interface IdempotentRequest {
  /** Account, key, method and path: the same header elsewhere is another request. */
  scope: string;
  key: string;
  /** Keyed hash of the content, hex: a plain one of a body with a secret could be guessed from a dump of the database. */
  hash: string;
  /** Seals the answer that is kept; it holds what the client sent, values of variables too. */
  vault: Pick<MasterKey, 'seal' | 'open'>;
}

/** What an effect answers, and what is kept of it. */
export interface IdempotentAnswer<T> {
  status: number;
  body: T;
  /** The thing made; given for answers that hold a secret, whose body is not kept. */
  secretOf?: string;
}

/** An answer, and whether it is a repeat of an earlier one. */
export interface OnceAnswer<T> extends IdempotentAnswer<T> {
  repeated: boolean;
}

/**
 * The request of a header, or null without one.
 * @param content what must be the same in a repeat: the canonical body, or the digest of an upload
 * @throws ApiError 400 for a key that is too long or not printable
 */
export function idempotentRequest(
  identity: KeyIdentity,
  method: string,
  path: string,
  header: string | string[] | undefined,
  content: string,
  masterKey: MasterKey,
): IdempotentRequest | null {
  if (header === undefined) return null;
  if (Array.isArray(header) || !/^[\x21-\x7e]{1,255}$/.test(header)) {
    throw badRequest(
      'idempotency_key_invalid',
      'Idempotency-Key must be one value of 1 to 255 printable characters',
    );
  }
  return {
    scope: `${identity.account_id}|${identity.key_id}|${method}|${path.split('?')[0]}`,
    key: header,
    hash: createHmac('sha256', masterKey.derive('idempotency')).update(content).digest('hex'),
    vault: masterKey,
  };
}

/** What a kept answer is bound to. */
const sealContext = ({ scope, key }: IdempotentRequest) => `idempotency|${scope}|${key}`;

interface Row {
  request_hash: string;
  status: number;
  body: unknown;
  resource_id: string | null;
}

/**
 * Runs an effect once per key: the row and the effect commit in one transaction (`tx`), a repeat answers what the first
 * answered, a concurrent duplicate gets 409 and another content under the same key 422 (reliability.md, 1). What throws is
 * not kept.
 */
export async function once<T>(
  tx: Sql,
  request: IdempotentRequest | null,
  effect: () => Promise<IdempotentAnswer<T>>,
): Promise<OnceAnswer<T>> {
  if (!request) return { ...(await effect()), repeated: false };
  const [lock] = await tx.query<{ locked: boolean }>(
    'select pg_try_advisory_xact_lock(hashtextextended($1, 0)) as locked',
    [`${request.scope}|${request.key}`],
  );
  if (!lock!.locked) {
    throw new ApiError(
      409,
      'idempotency_in_progress',
      'a request with this Idempotency-Key is still running',
      {
        headers: { 'retry-after': '1' },
      },
    );
  }
  const [known] = await tx.query<Row>(
    'select request_hash, status, body, resource_id from idempotency_key where scope = $1 and key = $2',
    [request.scope, request.key],
  );
  if (known) return repeat(known, request);
  const answer = await effect();
  await tx.query(
    'insert into idempotency_key (scope, key, request_hash, status, body, resource_id) values ($1, $2, $3, $4, $5::json, $6::uuid)',
    [
      request.scope,
      request.key,
      request.hash,
      answer.status,
      answer.secretOf ? null : JSON.stringify(sealed(request, answer.body)),
      answer.secretOf ?? null,
    ],
  );
  return { ...answer, repeated: false };
}

/** Thrown to look whether a request is a repeat without doing anything. */
const notYet = new Error('not a repeat');

/**
 * The answer of the first request, if this one repeats it: asked before money is moved or others are asked for it again, since
 * they may say something else by now.
 * @throws ApiError as `once` does
 */
export async function repeatOf<T>(
  database: Database,
  account: string,
  idem: IdempotentRequest | null,
): Promise<OnceAnswer<T> | null> {
  if (!idem) return null;
  try {
    const look = (tx: Sql) => once<T>(tx, idem, () => Promise.reject(notYet));
    return await database.transaction(look, account);
  } catch (error) {
    if (error === notYet) return null;
    throw error;
  }
}

function repeat<T>(known: Row, request: IdempotentRequest): OnceAnswer<T> {
  if (known.request_hash !== request.hash) {
    throw new ApiError(422, 'idempotency_key_reused', 'this Idempotency-Key was used with another content', {
      detail: [{ loc: ['header', 'Idempotency-Key'], msg: 'used with another content', type: 'value_error' }],
    });
  }
  if (known.resource_id) {
    throw new ApiError(
      409,
      'already_created',
      `already created as ${known.resource_id}; its secret is shown only once`,
    );
  }
  return { status: known.status, body: opened<T>(request, known.body), repeated: true };
}

const sealed = (request: IdempotentRequest, body: unknown): string =>
  request.vault.seal(JSON.stringify(body ?? null), sealContext(request)).toString('base64');

/** Rows of earlier versions hold the answer as it was. */
const opened = <T>(request: IdempotentRequest, kept: unknown): T =>
  (typeof kept === 'string'
    ? JSON.parse(request.vault.open(Buffer.from(kept, 'base64'), sealContext(request)))
    : kept) as T;

/** Forgets keys after a day, as the documentation says. */
export async function pruneIdempotencyKeys(sql: Sql): Promise<void> {
  await sql.query("delete from idempotency_key where created_at < now() - interval '24 hours'");
}
