import { randomUUID } from 'node:crypto';
import { type Database, type Sql } from '@nebo/persistence';
import { Lifecycle } from '../src/lifecycle.js';
import { look, start, type LifecycleRow } from '../src/table.js';

export interface Thing {
  id: string;
  wanted: string;
  n: number;
}

/** Loads things and shows every change of state in the thing's own row. */
export abstract class ThingLifecycle extends Lifecycle<Thing> {
  override readonly kind: string = 'thing';
  override readonly saysAtOnce: boolean = true;

  async load(tx: Sql, id: string): Promise<Thing | null> {
    const [thing] = await tx.query<Thing>('select id, wanted, n from thing where id = $1::uuid', [id]);
    return thing ?? null;
  }

  override async changed(
    tx: Sql,
    id: string,
    change: { to: string | null; reason: string | null },
  ): Promise<void> {
    await tx.query('update thing set shown = $2 where id = $1::uuid', [
      id,
      `${change.to ?? 'ended'}${change.reason ? ` (${change.reason})` : ''}`,
    ]);
  }
}

/** Makes things and begins their lives, in one transaction as a service would. */
export async function makeThings(
  db: Database,
  count: number,
  state: string,
  kind = 'thing',
): Promise<string[]> {
  const ids = Array.from({ length: count }, () => randomUUID());
  await db.transaction(async (tx) => {
    for (const id of ids) {
      await tx.query('insert into thing (id) values ($1::uuid)', [id]);
      await start(tx, kind, id, state);
    }
  });
  return ids;
}

export const note = (sql: Sql, id: string, word: string) =>
  sql.query('insert into journal (id, word) values ($1::uuid, $2)', [id, word]);

export async function words(sql: Sql, id: string): Promise<string[]> {
  const rows = await sql.query<{ word: string }>('select word from journal where id = $1::uuid order by at', [
    id,
  ]);
  return rows.map((row) => row.word);
}

export const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until the row of each id satisfies the condition. */
export async function untilRows(
  db: Sql,
  ids: readonly string[],
  what: string,
  holds: (row: LifecycleRow) => boolean,
  limit = 20_000,
  kind = 'thing',
): Promise<LifecycleRow[]> {
  const end = Date.now() + limit;
  for (;;) {
    const rows = await Promise.all(ids.map((id) => look(db, kind, id)));
    if (rows.every((row) => row !== null && holds(row))) return rows as LifecycleRow[];
    if (Date.now() > end) {
      const late = await db.query<{ row: unknown }>(
        'select to_jsonb(l) as row, now() from lifecycle l where id = any($1::uuid[]) and ended_at is null limit 3',
        [ids],
      );
      throw new Error(`${what}: not within ${limit} ms; ${JSON.stringify(late)}`);
    }
    await pause(15);
  }
}

/** A promise and the function that resolves it. */
export function gate(): { opened: Promise<void>; open: () => void } {
  let open = () => undefined as void;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}
