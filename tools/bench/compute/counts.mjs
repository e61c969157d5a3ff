/**
 * What machines cost by count: statements, transactions, row changes and notifications of each service, which no neighbour on
 * the machine changes. PostgreSQL logs every statement meanwhile, so nothing here is a time worth comparing with another run.
 */
import { createReadStream, statSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import pg from 'pg';
import { pause } from '../inference/parts.mjs';

const schemas = ['compute', 'networking', 'identity_billing'];
const channels = ['changed', 'lifecycle', 'outbox'];
const mark = 'nebo-count';
const settings = {
  log_min_duration_statement: '0',
  log_parameter_max_length: '0',
  log_line_prefix: `${mark}|%u|`,
};

export class Counts {
  /** Begins to count what a lane's services do. */
  static async begin(lane) {
    const counts = new Counts(lane);
    await counts.start();
    return counts;
  }

  constructor(lane) {
    this.lane = lane;
    this.log = join(lane.split.home, 'postgres.log');
    this.notified = new Map();
  }

  async start() {
    const { sql, split } = this.lane;
    this.ear = new pg.Client({ connectionString: split.env.DATABASE_URL });
    await this.ear.connect();
    this.ear.on('notification', ({ channel, payload }) => {
      const topic = `${channel} ${payload.split(':')[0]}`.trim();
      this.notified.set(topic, (this.notified.get(topic) ?? 0) + 1);
    });
    for (const schema of schemas)
      for (const channel of channels) await this.ear.query(`listen ${schema}_${channel}`);
    for (const [name, value] of Object.entries(settings))
      await sql.query(`alter system set ${name} = '${value}'`);
    await sql.query('select pg_reload_conf()');
    await pause(300);
    this.offset = statSync(this.log).size;
    this.tables = await this.tableCounts();
    this.wal = await this.walCounts();
    this.cpu = this.lane.cpu();
  }

  /** @returns the tables as Markdown, each figure for one of `things` */
  async end(things) {
    const { sql } = this.lane;
    const cpu = this.lane.cpu();
    // The last figures of an idle connection come within a second.
    await pause(1_500);
    const tables = await this.tableCounts();
    const wal = await this.walCounts();
    for (const name of Object.keys(settings)) await sql.query(`alter system reset ${name}`);
    await sql.query('select pg_reload_conf()');
    await this.ear.end();
    const statements = await this.readLog();
    return [
      this.services(statements, cpu, things),
      this.rows(tables, things),
      table(
        ['notifications a machine', 'count'],
        [...this.notified].sort().map(([topic, count]) => [topic, per(count, things)]),
      ),
      table(
        ['write-ahead log a machine', 'count'],
        Object.entries(wal).map(([name, count]) => [name, per(count - this.wal[name], things)]),
      ),
      this.texts(statements, things),
    ].join('\n\n');
  }

  async tableCounts() {
    const { rows } = await this.lane.sql.query(
      `select schemaname || '.' || relname as name, n_tup_ins::int as inserted, n_tup_upd::int as updated,
         n_tup_hot_upd::int as hot, n_tup_del::int as deleted, (coalesce(idx_scan, 0) + seq_scan)::int as scans
       from pg_stat_user_tables where schemaname = any($1)`,
      [schemas],
    );
    return new Map(rows.map(({ name, ...counts }) => [name, counts]));
  }

  async walCounts() {
    const { rows } = await this.lane.sql.query(
      `select wal_records::int as records, wal_fpi::int as pages, wal_bytes::bigint::int as bytes,
         (select sum(fsyncs)::int from pg_stat_io where object = 'wal') as flushes from pg_stat_wal`,
    );
    return rows[0];
  }

  /** What each role said since the beginning: text → times, ms; extended queries count once, by their execution. */
  async readLog() {
    const roles = new Map();
    const lines = createInterface({ input: createReadStream(this.log, { start: this.offset }) });
    let last;
    for await (const line of lines) {
      const [, role, ms, step, text] =
        new RegExp(`^${mark}\\|(\\w+)\\|LOG: +duration: ([\\d.]+) ms +(\\w+)(?: [^:]*)?: (.*)$`).exec(line) ??
        [];
      if (role === undefined) {
        // The rest of a statement of several lines.
        if (last && line.startsWith('\t')) last.text += ` ${line.trim()}`;
        continue;
      }
      last = { role, ms: Number(ms), step, text };
      const said = roles.get(role) ?? [];
      roles.set(role, said);
      said.push(last);
    }
    return roles;
  }

  services(statements, cpu, things) {
    const rows = [];
    for (const [role, said] of statements) {
      if (!role.startsWith('nebo_')) continue;
      const name = role.slice('nebo_'.length).replaceAll('_', '-');
      const runs = said.filter(({ step }) => step === 'execute' || step === 'statement');
      const begun = runs.filter(({ text }) => /^begin/i.test(text)).length;
      const inside = runs.filter(({ text }) => /^(begin|commit|rollback)/i.test(text)).length;
      const ms = said.reduce((sum, one) => sum + one.ms, 0);
      const parses = said.filter(({ step }) => step === 'parse').length;
      const used = (part) =>
        cpu[part] === undefined ? '' : per((cpu[part] - this.cpu[part]) * 1_000, things);
      rows.push([
        name,
        per(begun, things),
        per(runs.length - inside, things),
        per(parses, things),
        per(ms, things),
        used(name),
        used(`PostgreSQL of ${name}`),
      ]);
    }
    return table(
      [
        'a machine',
        'transactions',
        'statements in and beside them',
        'parsed',
        'ms in PostgreSQL',
        'CPU, ms',
        'CPU of PostgreSQL, ms',
      ],
      rows,
    );
  }

  rows(tables, things) {
    const rows = [];
    for (const [name, now] of tables) {
      const before = this.tables.get(name) ?? {};
      const changed = Object.fromEntries(
        Object.entries(now).map(([key, value]) => [key, value - (before[key] ?? 0)]),
      );
      if (changed.inserted + changed.updated + changed.deleted < things / 10) continue;
      rows.push([
        name,
        ...['inserted', 'updated', 'hot', 'deleted', 'scans'].map((key) => per(changed[key], things)),
      ]);
    }
    return table(['rows a machine', 'inserted', 'updated', 'of these HOT', 'deleted', 'scans'], rows.sort());
  }

  /** The statements that are said most, with what they take. */
  texts(statements, things) {
    const known = new Map();
    for (const [role, said] of statements)
      for (const { ms, step, text } of said) {
        const key = `${role} | ${text.replace(/\s+/g, ' ').slice(0, 110)}`;
        const one = known.get(key) ?? { times: 0, ms: 0 };
        if (step === 'execute' || step === 'statement') one.times += 1;
        one.ms += ms;
        known.set(key, one);
      }
    const rows = [...known]
      .sort((a, b) => b[1].ms - a[1].ms)
      .slice(0, 60)
      .map(([key, { times, ms }]) => [key.replaceAll('|', '\\|'), per(times, things), per(ms, things)]);
    return table(['statement', 'times a machine', 'ms a machine'], rows);
  }
}

const per = (count, things) => (count / things).toFixed(2);

const table = (head, rows) =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
