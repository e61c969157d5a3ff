import { Inject, Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { asAccount, Database, prismaAdapter, prismaSql, type Sql } from '@nebo/persistence';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { type Prisma, PrismaClient } from '../generated/prisma/client.js';

/** A Prisma transaction, and the same transaction as `Sql` for the libraries. */
export interface Tx {
  db: Prisma.TransactionClient;
  sql: Sql;
}

/** The service's Prisma client. Every use is a transaction in which row-level security sees one account. */
@Injectable()
export class Store implements OnApplicationShutdown {
  private readonly prisma: PrismaClient;

  constructor(database: Database, @Inject(RUNTIME) runtime: Runtime) {
    this.prisma = new PrismaClient({
      adapter: prismaAdapter(runtime.databaseUrl(database.schema), database.schema),
    });
  }

  /** Runs `work` for an account; everything of it commits together. */
  as<T>(account: string, work: (tx: Tx) => Promise<T>): Promise<T> {
    return asAccount(this.prisma, account, (db: Prisma.TransactionClient) =>
      work({ db, sql: prismaSql(db) }),
    );
  }

  async onApplicationShutdown(): Promise<void> {
    await this.prisma.$disconnect();
  }
}

/** Whether Prisma refused a row because of a unique index. */
export function isUniqueViolation(error: unknown): boolean {
  return (error as { code?: string } | null)?.code === 'P2002';
}
