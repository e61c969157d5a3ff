import { randomUUID } from 'node:crypto';
import { Injectable, type OnApplicationBootstrap } from '@nestjs/common';
import {
  formatRubles,
  type ImageCatalogFamily,
  type ImagesListResponse,
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  toFilter,
  type V1Region,
  type V1VMPlan,
} from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { conflict, idOrNull, referenceNotFound, unavailable } from '@nebo/service-kit';
import { RegionsService } from '../regions/regions.service.js';
import { Prices } from './prices.js';

/** A size of machines. */
export interface Plan {
  id: string;
  name: string;
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
  max_disk_gb: number;
}

/** An image with the regions that have it. */
export interface Image {
  id: string;
  slug: string;
  version: string;
  name: string;
  kind: string;
  os_family: string;
  filename: string;
  description: string | null;
  min_disk_gb: number;
  /** Its bytes in the blob store; null: the region's agent brings them, by the file's name. */
  sha256: string | null;
  bytes: number | null;
  withdrawn_at: Date | null;
  region_ids: string[];
}

/** What an operator adds. */
export type NewPlan = Omit<Plan, 'id'>;
export type NewImage = Omit<Image, 'id' | 'region_ids' | 'withdrawn_at'> & { region_ids: string[] | null };

/** What an installation has from its first start; the prices of these plans are in deploy/config/prices.yaml. */
const firstPlans: readonly NewPlan[] = [
  { name: 'nano', vcpu: 1, memory_mb: 1_024, disk_gb: 10, max_disk_gb: 50 },
  { name: 'small', vcpu: 2, memory_mb: 2_048, disk_gb: 20, max_disk_gb: 200 },
  { name: 'medium', vcpu: 2, memory_mb: 4_096, disk_gb: 40, max_disk_gb: 500 },
];
const firstImage: NewImage = {
  slug: 'tiny',
  version: '1',
  name: 'Tiny Linux 1',
  kind: 'os',
  os_family: 'linux',
  filename: 'tiny-1.qcow2',
  description: 'A small Linux that starts in seconds, for tries and tests',
  min_disk_gb: 1,
  sha256: null,
  bytes: null,
  region_ids: null,
};

/** What can be ordered: regions, sizes and images. */
@Injectable()
export class CatalogueService implements OnApplicationBootstrap {
  constructor(
    private readonly database: Database,
    private readonly prices: Prices,
    private readonly regionsService: RegionsService,
  ) {}

  /** Replicas that start together make one of each. */
  async onApplicationBootstrap(): Promise<void> {
    // Nest gives no order among bootstraps, and an image needs its region.
    await this.regionsService.onApplicationBootstrap();
    await this.database.transaction(async (tx) => {
      await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))::text as held', ['catalogue']);
      const [{ plans, images } = { plans: 1, images: 1 }] = await tx.query<{ plans: number; images: number }>(
        'select (select count(*)::int from vm_plan) as plans, (select count(*)::int from image) as images',
      );
      if (plans === 0) for (const plan of firstPlans) await insertPlan(tx, plan);
      if (images === 0) await insertImage(tx, firstImage);
    });
  }

  /** Regions with the price of a floating IP. */
  async regions(page: PageQuery): Promise<PageOf<V1Region>> {
    const [regions, prices] = await Promise.all([
      this.regionsService.list(),
      this.prices.read('floating_ip.month'),
    ]);
    const amount = prices.get('floating_ip.month')?.amount;
    const floating_ip_monthly_price = amount === undefined ? null : formatRubles(BigInt(amount));
    const rows = regions.map(({ id, name, is_default }) => ({
      id,
      name,
      is_default,
      floating_ip_monthly_price,
    }));
    return pageOf(rows.slice(page.offset, page.offset + page.limit), rows.length, page);
  }

  /** Sizes with their prices, the smallest first; one without a price cannot be ordered and is left out. */
  async plans(caller: KeyIdentity, page: PageQuery): Promise<PageOf<V1VMPlan>> {
    if (!toFilter(caller, 'vm:read', 'vm').any) return pageOf([], 0, page);
    const [plans, prices] = await Promise.all([this.planRows(), this.prices.read('vm.')]);
    const rows = plans.flatMap((plan): V1VMPlan[] => {
      const [month, hour] = [prices.get(`vm.${plan.name}.month`), prices.get(`vm.${plan.name}.hour`)];
      if (!month || !hour) return [];
      return [
        {
          id: plan.id,
          name: plan.name,
          vcpu: plan.vcpu,
          mem: plan.memory_mb,
          disk_size: plan.disk_gb,
          max_disk_size: plan.max_disk_gb,
          monthly_price: formatRubles(BigInt(month.amount)),
          hourly_price: formatRubles(BigInt(hour.amount)),
        },
      ];
    });
    return pageOf(rows.slice(page.offset, page.offset + page.limit), rows.length, page);
  }

  /** Images, flat and by family; with a region only what that region has. A region that is none has nothing: still 200. */
  async images(region: string | null): Promise<ImagesListResponse> {
    const regionId = region === null ? null : idOrNull(region);
    const rows = (await this.imageRows()).filter(
      ({ region_ids, withdrawn_at }) =>
        withdrawn_at === null && (region === null || (regionId !== null && region_ids.includes(regionId))),
    );
    return {
      images: rows.map(({ id, name, filename }) => ({ id, name, filename })),
      families: familiesOf(rows),
    };
  }

  planRows(): Promise<Plan[]> {
    return this.database.query<Plan>(
      'select id, name, vcpu, memory_mb, disk_gb, max_disk_gb from vm_plan order by vcpu, memory_mb, name',
    );
  }

  /** Every image, also those that were withdrawn. */
  imageRows(): Promise<Image[]> {
    return this.database.query<Image>(`${selectImages} order by i.slug, i.created_at, i.id`);
  }

  /** The plan that a body names. @throws ApiError 404 naming the field */
  async plan(id: string, sql: Sql = this.database): Promise<Plan> {
    const [plan] = await sql.query<Plan>(
      'select id, name, vcpu, memory_mb, disk_gb, max_disk_gb from vm_plan where id = $1::uuid',
      [idOrNull(id)],
    );
    if (!plan) throw referenceNotFound('vm_plan_id');
    return plan;
  }

  /** The image that a body names, in its region. @throws ApiError 404 naming the field */
  async image(id: string, regionId: string | null, sql: Sql = this.database): Promise<Image> {
    const [image] = await sql.query<Image>(`${selectImages} where i.id = $1::uuid`, [idOrNull(id)]);
    if (!image || regionId === null || !image.region_ids.includes(regionId) || image.withdrawn_at)
      throw referenceNotFound('image_id');
    return image;
  }

  /** The image of a machine that there is: withdrawn or not, of any region. */
  async imageOf(id: string): Promise<Image> {
    const [image] = await this.database.query<Image>(`${selectImages} where i.id = $1::uuid`, [id]);
    return image!;
  }

  /**
   * @throws ApiError 409 `name_taken`; 503 `unavailable` when the plan has no price yet: nobody could order it
   */
  async addPlan(plan: NewPlan): Promise<Plan> {
    const prices = await this.prices.read(`vm.${plan.name}.`);
    for (const unit of ['month', 'hour'])
      if (!prices.has(`vm.${plan.name}.${unit}`))
        throw unavailable(
          `set the price first: price set --id vm.${plan.name}.${unit} --amount RUB --unit ${unit}`,
        );
    const added = await this.database.transaction((tx) => insertPlan(tx, plan));
    if (!added) throw conflict('name_taken', `a plan named "${plan.name}" exists`);
    return added;
  }
}

const selectImages = `select i.id, i.slug, i.version, i.name, i.kind, i.os_family, i.filename, i.description, i.min_disk_gb,
  i.sha256, i.bytes::float8 as bytes, i.withdrawn_at,
  -- What an agent brings itself every region has, also one that was added later.
  array(select r.id::text from region r where i.sha256 is null
    or exists (select 1 from image_region o where o.image_id = i.id and o.region_id = r.id) order by r.id) as region_ids
  from image i`;

async function insertPlan(tx: Sql, plan: NewPlan): Promise<Plan | null> {
  const [row] = await tx.query<Plan>(
    `insert into vm_plan (id, name, vcpu, memory_mb, disk_gb, max_disk_gb)
     values ($1::uuid, $2, $3::int, $4::int, $5::int, $6::int)
     on conflict (name) do nothing returning id, name, vcpu, memory_mb, disk_gb, max_disk_gb`,
    [randomUUID(), plan.name, plan.vcpu, plan.memory_mb, plan.disk_gb, plan.max_disk_gb],
  );
  return row ?? null;
}

/**
 * Writes an image; one that was withdrawn is offered again, one that is there also in the regions that it was not in.
 * @returns null when it is there, in all of them
 */
export async function insertImage(tx: Sql, image: NewImage): Promise<Image | null> {
  const [row] = await tx.query<{ id: string }>(
    `insert into image (id, slug, version, name, kind, os_family, filename, description, min_disk_gb, sha256, bytes)
     values ($1::uuid, $2, $3, $4, $5, $6, $7, $8, $9::int, $10, $11::bigint)
     on conflict (slug, version, filename) do update set withdrawn_at = null, name = excluded.name,
       os_family = excluded.os_family, description = excluded.description, min_disk_gb = excluded.min_disk_gb
       where image.withdrawn_at is not null
     returning id`,
    [
      randomUUID(),
      image.slug,
      image.version,
      image.name,
      image.kind,
      image.os_family,
      image.filename,
      image.description,
      image.min_disk_gb,
      image.sha256,
      image.bytes,
    ],
  );
  if (!row) return extendImage(tx, image);
  const { id } = row;
  const regions = await tx.query<{ region_id: string }>(
    `insert into image_region (image_id, region_id)
     select $1::uuid, id from region where $2::uuid[] is null or id = any($2::uuid[])
     on conflict (image_id, region_id) do update set region_id = excluded.region_id returning region_id`,
    [id, image.region_ids],
  );
  return { ...image, id, withdrawn_at: null, region_ids: regions.map(({ region_id }) => region_id) };
}

async function extendImage(tx: Sql, image: NewImage): Promise<Image | null> {
  const [more] = await tx.query<{ image_id: string }>(
    `insert into image_region (image_id, region_id)
     select i.id, r.id from image i cross join region r where i.slug = $1 and i.version = $2 and i.filename = $3
       and ($4::uuid[] is null or r.id = any($4::uuid[]))
     on conflict do nothing returning image_id`,
    [image.slug, image.version, image.filename, image.region_ids],
  );
  if (!more) return null;
  const [extended] = await tx.query<Image>(`${selectImages} where i.id = $1::uuid`, [more.image_id]);
  return extended!;
}

/** Families by slug; of each version the build that was added last is the one to take, per region too. */
function familiesOf(rows: readonly Image[]): ImageCatalogFamily[] {
  const families = new Map<string, ImageCatalogFamily>();
  for (const row of rows) {
    const family = families.get(row.slug) ?? {
      slug: row.slug,
      name: row.name,
      kind: row.kind,
      os_family: row.os_family,
      default_version: null,
      description: row.description,
      logo_url: null,
      readme: null,
      ports: [],
      versions: [],
    };
    families.set(row.slug, family);
    let version = family.versions.find((candidate) => candidate.version === row.version);
    if (!version) {
      version = { version: row.version, image_id: row.id, exact_version: null, by_cluster: {} };
      family.versions.push(version);
    }
    version.image_id = row.id;
    for (const region of row.region_ids) version.by_cluster[region] = row.id;
    family.default_version = row.version;
  }
  return [...families.values()];
}
