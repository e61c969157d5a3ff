import { PrismaPg } from '@prisma/adapter-pg';
import type { PrismaRaw } from './sql.js';

/** The driver adapter of a service's Prisma client: its own role, its own schema. */
export function prismaAdapter(url: string, schema: string, max = 5): PrismaPg {
  return new PrismaPg({ connectionString: url, max, connectionTimeoutMillis: 5_000 }, { schema });
}

/** The part of a generated Prisma client that `asAccount` needs. */
export interface PrismaTransactor<Tx extends PrismaRaw> {
  $transaction<T>(work: (tx: Tx) => Promise<T>, options?: { timeout?: number; maxWait?: number }): Promise<T>;
}

/**
 * Runs `work` in a transaction in which row-level security shows one account's rows; 'system' (background work that
 * serves all accounts) shows every row. Without this setting a tenant table shows nothing.
 */
export function asAccount<Tx extends PrismaRaw, T>(
  prisma: PrismaTransactor<Tx>,
  account: string,
  work: (tx: Tx) => Promise<T>,
): Promise<T> {
  return prisma.$transaction(
    async (tx) => {
      await tx.$queryRawUnsafe("select set_config('app.account', $1, true)", account);
      return work(tx);
    },
    { timeout: 10_000, maxWait: 5_000 },
  );
}
