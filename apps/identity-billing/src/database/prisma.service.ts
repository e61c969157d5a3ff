import { Inject, Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { asAccount, prismaAdapter } from '@nebo/persistence';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { PrismaClient, type Prisma } from '../generated/prisma/client.js';

/** A Prisma client inside a transaction. */
export type Tx = Prisma.TransactionClient;

const schema = 'identity_billing';

/** Ordinary reads and writes. Nothing is reachable without saying for whom: tenant tables show one account's rows. */
@Injectable()
export class PrismaService implements OnApplicationShutdown {
  private readonly client: PrismaClient;

  constructor(@Inject(RUNTIME) runtime: Runtime) {
    this.client = new PrismaClient({ adapter: prismaAdapter(runtime.databaseUrl(schema), schema) });
  }

  /**
   * Runs `work` in a transaction that sees the rows of one account.
   * @param account a uuid, or 'system' for work of all accounts
   */
  forAccount<T>(account: string, work: (tx: Tx) => Promise<T>): Promise<T> {
    return asAccount<Tx, T>(this.client, account, work);
  }

  async onApplicationShutdown(): Promise<void> {
    await this.client.$disconnect();
  }
}

/** True for a violated unique constraint. */
export function isTaken(error: unknown): boolean {
  return (error as { code?: string } | null)?.code === 'P2002';
}

/** True for a row to be changed that is not there any more. */
export function isGone(error: unknown): boolean {
  return (error as { code?: string } | null)?.code === 'P2025';
}
