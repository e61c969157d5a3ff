import type { Database, Sql } from '@nebo/persistence';
import { type IdempotentRequest, once, type OnceAnswer } from '@nebo/service-kit';

/** Thrown to look whether a request is a repeat without doing anything. */
const notYet = new Error('not a repeat');

/** The answer of the first request, if this one repeats it: asked before money is moved for it again. */
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
