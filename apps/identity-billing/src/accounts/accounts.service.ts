import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { type Nano } from '@nebo/contracts';
import { prismaSql } from '@nebo/persistence';
import { notFound } from '@nebo/service-kit';
import { AuditService } from '../audit/audit.service.js';
import { asUuid } from '../database/ids.js';
import { PrismaService } from '../database/prisma.service.js';
import { DepositsService } from '../ledger/deposits.service.js';
import { nameKey } from '../projects/project.mapper.js';

/** An account as services and the operator see it. */
export interface AccountInfo {
  account_id: string;
  name: string;
  state: string;
  tariff_plan: string;
  created_at: string;
}

/** What a new account begins with. */
export interface NewAccount {
  name: string;
  /** Real money and bonus, 10⁻⁹ rubles. */
  topup: Nano;
  credits: Nano;
  /** Who makes it, for the audit log. */
  actor: string;
}

/** Accounts. Each is born with an owner, a project `default` and a balance. */
@Injectable()
export class AccountsService {
  constructor(
    private readonly prisma: PrismaService,
    private readonly deposits: DepositsService,
    private readonly audit: AuditService,
  ) {}

  /** Makes an account with its owner, the project `default`, its balance and first money, all or nothing. */
  async create(wanted: NewAccount): Promise<{ account_id: string; project_id: string; owner_id: string }> {
    const accountId = randomUUID();
    const projectId = randomUUID();
    const ownerId = randomUUID();
    await this.prisma.forAccount(accountId, async (tx) => {
      const plan = await tx.tariffPlan.findFirst({ where: { is_default: true } });
      await tx.account.create({
        data: { id: accountId, name: wanted.name, tariff_plan: plan?.id ?? 'free' },
      });
      await tx.member.create({
        data: { id: ownerId, account_id: accountId, name: wanted.name, role: 'owner' },
      });
      await tx.project.create({
        data: { id: projectId, account_id: accountId, name: 'default', name_key: nameKey('default') },
      });
      const sql = prismaSql(tx);
      await sql.query('insert into balance (account_id) values ($1::uuid)', [accountId]);
      const source = {
        account: accountId,
        service: 'operator',
        sourceId: `account:${accountId}`,
        actor: wanted.actor,
      };
      if (wanted.topup > 0n)
        await this.deposits.post(sql, { ...source, kind: 'topup', amount: wanted.topup });
      if (wanted.credits > 0n)
        await this.deposits.post(sql, { ...source, kind: 'credit', amount: wanted.credits });
      await this.audit.write(sql, {
        account: accountId,
        actor: wanted.actor,
        action: 'account create',
        resource: `account:${accountId}`,
        details: { name: wanted.name },
      });
    });
    return { account_id: accountId, project_id: projectId, owner_id: ownerId };
  }

  /** @throws ApiError 404 */
  async get(id: string): Promise<AccountInfo> {
    const account = asUuid(id);
    const row =
      account &&
      (await this.prisma.forAccount(account, (tx) => tx.account.findUnique({ where: { id: account } })));
    if (!row) throw notFound();
    return {
      account_id: row.id,
      name: row.name,
      state: row.state,
      tariff_plan: row.tariff_plan,
      created_at: row.created_at.toISOString(),
    };
  }

  /** All accounts, oldest first, for the operator. */
  async list(): Promise<AccountInfo[]> {
    const rows = await this.prisma.forAccount('system', (tx) =>
      tx.account.findMany({ orderBy: [{ created_at: 'asc' }, { id: 'asc' }] }),
    );
    return rows.map((row) => ({
      account_id: row.id,
      name: row.name,
      state: row.state,
      tariff_plan: row.tariff_plan,
      created_at: row.created_at.toISOString(),
    }));
  }
}
