import { Inject, Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import type { RecordType } from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { HealthRegistry, METRICS, RUNTIME, type Runtime } from '@nebo/service-kit';
import type { Metrics } from '@nebo/telemetry';
import type { DnsDriver, NameData, SetData, ZoneHead } from '../drivers/dns-driver.js';
import type { DnsSettings } from '../zones/settings.js';
import { DNS_DRIVER, DNS_SETTINGS } from '../zones/tokens.js';

/** A notification may be lost with its connection: all zones are compared so often, milliseconds. */
const sweepMs = 10_000;
/** After a failed read of the database, milliseconds. */
const retryMs = 500;
/** Zones whose data one statement reads. */
const batch = 200;

interface HeadRow {
  id: string;
  account_id: string;
  name: string;
  status: string;
  default_ttl: number | null;
  serial: bigint;
  created_at: Date;
}

interface ValueRow {
  zone_id: string;
  name: string;
  type: RecordType;
  ttl: number | null;
  rdata: Buffer;
}

const headColumns = 'id, account_id, name, status, default_ttl, serial, created_at';

/**
 * Gives the driver what is in the database: everything at the start, then what each notification names, by the serial of its
 * zone. While the database is away the driver answers from what it has; afterwards all zones are compared.
 */
@Injectable()
export class Publisher implements OnApplicationBootstrap, OnModuleDestroy {
  private readonly waiting = new Set<string>();
  private everything = true;
  private running: Promise<void> | null = null;
  private stopped = false;
  private timer: NodeJS.Timeout | undefined;
  private unlisten: (() => Promise<void>) | undefined;
  private endRefresh: (() => void) | undefined;
  private loaded = false;
  private listening: number | null = null;

  constructor(
    private readonly database: Database,
    @Inject(DNS_DRIVER) private readonly driver: DnsDriver,
    @Inject(DNS_SETTINGS) private readonly settings: DnsSettings,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'log' | 'figures'>,
    @Inject(METRICS) private readonly metrics: Metrics,
    health: HealthRegistry,
  ) {
    health.add('name server', () => ({
      ok: this.loaded && this.listening !== null,
      required: true,
      detail: this.loaded ? `${driver.name}, port ${this.listening}` : 'reading the zones',
    }));
  }

  /** The port of the name server, or null before it listens. */
  get port(): number | null {
    return this.listening;
  }

  async onApplicationBootstrap(): Promise<void> {
    this.countFigures();
    this.unlisten = await this.database.listen(`${this.database.schema}_changed`, (payload) =>
      this.hear(payload),
    );
    await this.start();
    // Nobody is told "refused" about a zone that just has not been read yet.
    if (!this.loaded) throw new Error('the zones could not be read');
    this.listening = await this.driver.open();
  }

  async onModuleDestroy(): Promise<void> {
    this.stopped = true;
    clearTimeout(this.timer);
    this.endRefresh?.();
    await this.unlisten?.();
    await this.running;
    await this.driver.close();
  }

  private hear(payload: string): void {
    if (payload.startsWith('zone:')) this.waiting.add(payload.slice(5));
    else if (payload === '') this.everything = true;
    else return;
    void this.start();
  }

  private start(): Promise<void> {
    if (this.stopped) return Promise.resolve();
    this.running ??= this.work().finally(() => (this.running = null));
    return this.running;
  }

  private async work(): Promise<void> {
    clearTimeout(this.timer);
    let next = sweepMs;
    const wanted: string[] = [];
    try {
      while (!this.stopped && (this.everything || this.waiting.size > 0)) {
        wanted.push(...this.waiting);
        this.waiting.clear();
        if (this.everything) {
          this.everything = false;
          await this.compareAll().catch((error: unknown) => {
            this.everything = true;
            throw error;
          });
          this.loaded = true;
        } else await this.refresh([...new Set(wanted)]);
        wanted.length = 0;
      }
    } catch (err) {
      for (const id of wanted) this.waiting.add(id);
      this.metrics.failure('name server');
      this.runtime.log.warn({ err }, 'zones could not be read; the name server answers from what it has');
      next = retryMs;
    }
    if (this.stopped) return;
    this.timer = setTimeout(() => {
      this.everything = true;
      void this.start();
    }, next);
    this.timer.unref();
  }

  /** Reads again what differs from the database in any way. */
  private async compareAll(): Promise<void> {
    const rows = await this.database.snapshot((tx) => tx.query<HeadRow>(`select ${headColumns} from zone`));
    const known = new Map(this.driver.list().map((head) => [head.id, head]));
    const differs = rows.filter((row) => {
      const head = known.get(row.id);
      known.delete(row.id);
      return !head || !sameHead(head, this.headOf(row));
    });
    for (const id of known.keys()) this.driver.remove(id);
    for (let at = 0; at < differs.length; at += batch)
      await this.refresh(differs.slice(at, at + batch).map(({ id }) => id));
  }

  private async refresh(ids: string[]): Promise<void> {
    // Heads and data of one moment: a serial without its data would never be read again.
    await this.database.snapshot(async (tx) => {
      const rows = await tx.query<HeadRow>(`select ${headColumns} from zone where id = any($1::uuid[])`, [
        ids,
      ]);
      const whole: ZoneHead[] = [];
      for (const row of rows) {
        const head = this.headOf(row);
        const before = this.driver.head(head.id);
        const names = before ? await changedNames(tx, before, head) : null;
        if (names === null) whole.push(head);
        else this.driver.change(head, await readNames(tx, head.id, names));
      }
      const data = await readZones(
        tx,
        whole.map(({ id }) => id),
      );
      for (const head of whole) this.driver.ensure(head, data.get(head.id) ?? []);
      const there = new Set(rows.map(({ id }) => id));
      for (const id of ids) if (!there.has(id)) this.driver.remove(id);
    });
  }

  private headOf(row: HeadRow): ZoneHead {
    return {
      id: row.id,
      account_id: row.account_id,
      name: row.name,
      active: row.status === 'active',
      created_at: row.created_at.getTime(),
      serial: Number(row.serial % 4_294_967_296n),
      default_ttl: row.default_ttl ?? this.settings.defaultTtl,
    };
  }

  private countFigures(): void {
    const answers = this.metrics.gauge('nebo_dns_answers', 'Answers since the start, by response code', [
      'rcode',
    ]);
    const dropped = this.metrics.gauge('nebo_dns_dropped', 'Packets since the start that got no answer');
    const zones = this.metrics.gauge('nebo_dns_zones', 'Zones that are answered from');
    this.endRefresh = this.runtime.figures.beforeScrape(async () => {
      const figures = this.driver.figures();
      for (const [rcode, count] of Object.entries(figures.answers)) answers(count, { rcode });
      dropped(figures.dropped);
      zones(this.driver.list().length);
    });
  }
}

const sameHead = (a: ZoneHead, b: ZoneHead): boolean =>
  a.serial === b.serial && a.active === b.active && a.default_ttl === b.default_ttl && a.name === b.name;

/** The names that changed between two serials; null when that is not known any more, so that the whole zone is read. */
async function changedNames(tx: Sql, before: ZoneHead, after: ZoneHead): Promise<string[] | null> {
  if (before.serial === after.serial) return [];
  const rows = await tx.query<{ serial: bigint; name: string | null }>(
    'select serial, name from zone_change where zone_id = $1::uuid and serial > $2::bigint order by serial',
    [after.id, before.serial],
  );
  const serials = new Set(rows.map(({ serial }) => serial));
  if (serials.size !== after.serial - before.serial) return null;
  return [...new Set(rows.flatMap(({ name }) => (name === null ? [] : [name])))];
}

const valueQuery = `select s.zone_id, s.name, s.type, s.ttl, r.rdata from rrset s join record r on r.rrset_id = s.id`;
const valueOrder = 'order by s.zone_id, s.name, s.type, r.position, r.seq';

/** The sets of some names; a name without any is listed with none. */
async function readNames(tx: Sql, zone: string, names: string[]): Promise<NameData[]> {
  if (names.length === 0) return [];
  const rows = await tx.query<ValueRow>(
    `${valueQuery} where s.zone_id = $1::uuid and s.name = any($2::text[]) ${valueOrder}`,
    [zone, names],
  );
  const found = new Map(
    grouped(rows)
      .get(zone)
      ?.map((data) => [data.name, data]),
  );
  return names.map((name) => found.get(name) ?? { name, sets: [] });
}

async function readZones(tx: Sql, ids: string[]): Promise<Map<string, NameData[]>> {
  if (ids.length === 0) return new Map();
  return grouped(
    await tx.query<ValueRow>(`${valueQuery} where s.zone_id = any($1::uuid[]) ${valueOrder}`, [ids]),
  );
}

/** Rows in the order of zone, name and type as names by zone. */
function grouped(rows: readonly ValueRow[]): Map<string, NameData[]> {
  const zones = new Map<string, NameData[]>();
  for (const { zone_id, name, type, ttl, rdata } of rows) {
    let names = zones.get(zone_id);
    if (!names) zones.set(zone_id, (names = []));
    let data = names.at(-1);
    if (data?.name !== name) names.push((data = { name, sets: [] }));
    let set: SetData | undefined = data.sets.at(-1);
    if (set?.type !== type) data.sets.push((set = { type, ttl, rdata: [] }));
    set.rdata.push(rdata);
  }
  return zones;
}
