import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import {
  type AuditWriteRequest,
  pageOf,
  type PageOf,
  type PageQuery,
  type V1AuditEntry,
} from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { type AuditEntry } from '../generated/prisma/client.js';
import { PrismaService } from '../database/prisma.service.js';

/** What is written of an action. */
export interface AuditNote {
  /** Null: about the whole installation. */
  account: string | null;
  /** `key:<id>`, `operator` or `service:<name>`. */
  actor: string;
  /** Operation id or operator command. */
  action: string;
  /** `kind:<id>`. */
  resource?: string | null;
  /** Without secrets. */
  details?: object | null;
  /** When it was done; default: now. */
  at?: Date;
}

/** Who of the operator's commands. */
export const operatorActor = 'operator';
/** Who of a key's operations. */
export const keyActor = (keyId: string) => `key:${keyId}`;

/** The audit log: an entry stands in the transaction of what it tells, and is never changed. */
@Injectable()
export class AuditService {
  constructor(
    private readonly prisma: PrismaService,
    private readonly database: Database,
  ) {}

  /** Writes an entry in the transaction of its cause. */
  async write(tx: Sql, note: AuditNote, id: string = randomUUID()): Promise<void> {
    await tx.query(
      `insert into audit_entry (id, account_id, actor, action, resource, details, at)
       values ($1::uuid, $2::uuid, $3, $4, $5, $6::jsonb, coalesce($7::timestamptz, clock_timestamp()))
       on conflict (id) do nothing`,
      [
        id,
        note.account,
        note.actor,
        note.action,
        note.resource ?? null,
        note.details ? JSON.stringify(note.details) : null,
        note.at ?? null,
      ],
    );
  }

  /** Takes an entry of another service; a repeat with the same id changes nothing. */
  async take(service: string, entry: AuditWriteRequest): Promise<void> {
    const { action, resource, details } = entry;
    const account = entry.account_id?.toLowerCase() ?? null;
    await this.database.transaction(
      (tx) =>
        this.write(
          tx,
          { account, actor: entry.actor ?? `service:${service}`, action, resource, details },
          entry.id,
        ),
      account ?? 'system',
    );
  }

  /** Entries of an account, newest first. */
  list(account: string, page: PageQuery): Promise<PageOf<V1AuditEntry>> {
    return this.prisma.forAccount(account, async (tx) => {
      const where = { account_id: account };
      const total = await tx.auditEntry.count({ where });
      const rows = await tx.auditEntry.findMany({
        where,
        orderBy: { seq: 'desc' },
        skip: page.offset,
        take: page.limit,
      });
      return pageOf(rows.map(auditRecord), total, page);
    });
  }
}

function auditRecord(row: AuditEntry): V1AuditEntry {
  return {
    id: row.id,
    at: row.at.toISOString(),
    actor: row.actor,
    action: row.action,
    resource: row.resource,
    details: row.details as object | null,
  };
}
