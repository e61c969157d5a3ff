import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { MasterKey } from '@nebo/service-kit';
import pg from 'pg';
import type { Api, ApiAnswer } from './api.js';
import type { Chance } from './chance.js';
import { run } from './nebo.js';
import { type Split, startSplit } from './split.mjs';

/** What may be killed, and the address that says when it is back; an agent has none. */
const victims = ['compute', 'networking', 'region-agent'] as const;

/** A call to another service is given up after 2 s: what took that long met a machine that is too busy, not an error. */
const peerLimitMs = 1_900;

/** What the audit says, as far as tests read it. */
export interface Audit {
  ok: boolean;
  differences: { rule: string; thing: string; text: string }[];
  under_way: { thing: string; state: string }[];
  counted: Record<string, number>;
}

/** The services of machines and networks with a simulated region, each a process that is killed now and then. */
export class RegionGround {
  kills = 0;
  /** Answers that had to be asked for again outside of every kill. */
  slow = 0;
  private readonly quietFrom: { from: number; to: number }[] = [];
  private killing: Promise<void> = Promise.resolve();
  private done = 0;

  private constructor(
    readonly split: Split,
    readonly sql: pg.Client,
    private readonly chance: Chance,
    /** Operations between two kills. */
    private readonly every: number,
  ) {}

  static async start(chance: Chance, every: number): Promise<RegionGround> {
    const split = await startSplit({
      env: { NEBO_DRIVERS: 'machines=simulated,networks=simulated' },
      only: ['compute', 'networking', 'apps-builder'],
    });
    const sql = new pg.Client({ connectionString: split.env['DATABASE_URL'] });
    await sql.connect();
    return new RegionGround(split, sql, chance, every);
  }

  /** An account with a project and a key; without money it can order nothing. */
  async account(name: string, topup: number): Promise<{ id: string; project: string; key: string }> {
    const made = await this.operator('account-create', { name, ...(topup > 0 ? { topup: `${topup}` } : {}) });
    const { key } = await this.operator('key-create', { account: made['account_id'] });
    return { id: made['account_id']!, project: made['project_id']!, key: key! };
  }

  /** What the operator's commands do, without a process for each. */
  private async operator(command: string, body: object): Promise<Record<string, string>> {
    const token = MasterKey.fromFile(join(this.split.home, 'master.key'))
      .derive('operator')
      .toString('base64url');
    const { origin } = new URL(this.split.baseUrl);
    const answer = await fetch(`${origin}/operator/v1/identity-billing/${command}`, {
      method: 'POST',
      headers: { authorization: `Bearer nebo_operator_${token}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(`${command}: ${await answer.text()}`);
    return (await answer.json()) as Record<string, string>;
  }

  /**
   * One operation, asked until there is an answer that says what came of it: a process that is killed answers 502 or 503, or
   * not at all. Nobody else may answer so.
   */
  async call(
    api: Api,
    method: string,
    path: string,
    body?: unknown,
  ): Promise<ApiAnswer & { repeats: number }> {
    // The same for every repeat: what the first one did is not done again.
    const headers: Record<string, string> = method === 'POST' ? { 'idempotency-key': randomUUID() } : {};
    for (let [repeats, end] = [0, Date.now() + 90_000]; ; repeats += 1) {
      const began = Date.now();
      const answer = await api.call(method, path, { body, headers }).catch((error: Error) => error);
      const words =
        answer instanceof Error ? String(answer.cause ?? answer) : `${answer.status} ${answer.text}`;
      const isLost = answer instanceof Error && /fetch failed|terminated/.test(answer.message);
      if (answer instanceof Error && !isLost) throw answer;
      const code = answer instanceof Error ? null : answer.body?.error?.code;
      if (!isLost && !(answer instanceof Error)) {
        if (![502, 503].includes(answer.status) && code !== 'idempotency_in_progress')
          return { ...answer, repeats };
      }
      if (code !== 'idempotency_in_progress' && !this.wasDisturbed(began)) {
        if (Date.now() - began < peerLimitMs)
          throw new Error(`${method} ${path} answered ${words} while nothing was killed`);
        this.slow += 1;
      }
      if (Date.now() > end) throw new Error(`${method} ${path} has no answer for 90 s, at last ${words}`);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }

  /** After each operation; from time to time it kills somebody, while the others go on. */
  async tick(): Promise<void> {
    this.done += 1;
    if (this.done % this.every !== 0) return;
    // The next victim falls when the last one is back.
    await this.killing;
    const victim = this.chance.pick(victims);
    const away = this.chance.int(0, 300);
    this.killing = this.kill(victim, away);
    // Whoever waits for it hears of a failure; nobody else shall.
    this.killing.catch(() => undefined);
  }

  private async kill(name: (typeof victims)[number], awayMs: number): Promise<void> {
    const window = { from: Date.now(), to: Infinity };
    this.quietFrom.push(window);
    this.kills += 1;
    const part = this.split.parts[name]!;
    await part.kill();
    await new Promise((resolve) => setTimeout(resolve, awayMs));
    part.up();
    if (name !== 'region-agent')
      await part.until(`${this.split.env[`NEBO_${name.toUpperCase()}_URL`]}/healthz`, 60_000);
    // Others notice with their next call that it is back.
    window.to = Date.now() + 2_000;
  }

  private wasDisturbed(began: number): boolean {
    return this.quietFrom.some(({ from, to }) => from <= Date.now() && to >= began);
  }

  /** Settled when the last victim is back. */
  calm(): Promise<void> {
    return this.killing;
  }

  /** The operator's own command; it may find differences. */
  async audit(settleSeconds: number): Promise<Audit> {
    const words = ['apps/all-in-one/dist/admin.js', 'audit', '--settle', `${settleSeconds}`, '--json'];
    const { code, stdout, stderr } = await run(process.execPath, words, this.split.env);
    if (stdout === '') throw new Error(`audit: exit ${code}: ${stderr}`);
    const report = JSON.parse(stdout) as Audit;
    if (report.ok !== (code === 0)) throw new Error(`audit: exit ${code} with ${stdout}`);
    return report;
  }

  async stop(): Promise<void> {
    await this.killing.catch(() => undefined);
    await this.sql.end().catch(() => undefined);
    await this.split.stop();
  }
}
