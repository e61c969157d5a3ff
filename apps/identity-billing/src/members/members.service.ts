import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { type Role } from '@nebo/contracts';
import { prismaSql } from '@nebo/persistence';
import { conflict, referenceNotFound } from '@nebo/service-kit';
import { AuditService } from '../audit/audit.service.js';
import { PrismaService, type Tx } from '../database/prisma.service.js';
import { sayKeyChanged } from '../keys/key-events.js';

/** The roles, highest first. */
export const roles = ['owner', 'admin', 'developer', 'billing', 'reader'] as const satisfies readonly Role[];

/** People of an account. They sign in with the panel; until then they are the issuers of keys. */
@Injectable()
export class MembersService {
  constructor(
    private readonly prisma: PrismaService,
    private readonly audit: AuditService,
  ) {}

  /** @throws ApiError 404 for an unknown account */
  async add(account: string, name: string, role: Role, actor: string): Promise<{ id: string; role: Role }> {
    const id = randomUUID();
    await this.prisma.forAccount(account, async (tx) => {
      if (!(await tx.account.findUnique({ where: { id: account } }))) throw referenceNotFound('account');
      await tx.member.create({ data: { id, account_id: account, name, role } });
      await this.audit.write(prismaSql(tx), {
        account,
        actor,
        action: 'member add',
        resource: `member:${id}`,
        details: { role },
      });
    });
    return { id, role };
  }

  /**
   * Gives a member another role; the keys that the member issued have the new role's rights from then on.
   * @throws ApiError 404; 409 `last_owner`
   */
  async setRole(member: string, role: Role, actor: string): Promise<{ id: string; role: Role }> {
    await this.prisma.forAccount('system', async (tx) => {
      const found = await tx.member.findUnique({ where: { id: member } });
      if (!found) throw referenceNotFound('member');
      // Two owners that step down at once take turns at the account's row, so that one of them stays.
      const sql = prismaSql(tx);
      await sql.query('select id from account where id = $1::uuid for update', [found.account_id]);
      // Read again: what it was before this turn came may be over.
      const row = await tx.member.findUniqueOrThrow({ where: { id: member } });
      const others = await tx.member.count({
        where: { account_id: row.account_id, role: 'owner', id: { not: member } },
      });
      if (row.role === 'owner' && role !== 'owner' && others === 0) {
        throw conflict('last_owner', 'the account would have no owner left');
      }
      await tx.member.update({ where: { id: member }, data: { role } });
      const keys = await tx.apiKey.findMany({
        where: { account_id: row.account_id, issuer_id: member, state: 'active' },
      });
      for (const key of keys) await sayKeyChanged(sql, key);
      await this.audit.write(sql, {
        account: row.account_id,
        actor,
        action: 'member role',
        resource: `member:${member}`,
        details: { role },
      });
    });
    return { id: member, role };
  }

  /** The member who issues the operator's keys. @throws ApiError 404 for an unknown account */
  async ownerOf(tx: Tx, account: string): Promise<string> {
    const owner = await tx.member.findFirst({
      where: { account_id: account, role: 'owner' },
      orderBy: { created_at: 'asc' },
    });
    if (!owner) throw referenceNotFound('account');
    return owner.id;
  }
}
