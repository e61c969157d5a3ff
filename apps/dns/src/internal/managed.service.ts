import { Injectable } from '@nestjs/common';
import type {
  ManagedDeleted,
  ManagedDeleteRequest,
  ManagedPut,
  ManagedPutRequest,
  RecordType,
} from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { ApiError, conflict, fieldError } from '@nebo/service-kit';
import { fullName } from '../data/names.js';
import { checkPlace, requireContent } from '../rrsets/set-rules.js';
import { newValue, readSets, type RecordSet, SetChanges, setsAt, type Value } from '../rrsets/set-store.js';
import { findZone, type ZoneRow } from '../zones/zone.rows.js';

/** Records of the platform in zones of accounts (libs/contracts/src/internal/records.ts). Only what has the owner's mark is touched. */
@Injectable()
export class ManagedService {
  constructor(private readonly database: Database) {}

  /** @throws ApiError see `ManagedPutRequest` */
  async put(request: ManagedPutRequest): Promise<ManagedPut> {
    const { account_id, owner, name: text, type, contents, ttl, override } = request;
    return this.database.transaction(async (tx) => {
      await holdOwner(tx, account_id, owner);
      const [released] = await tx.query(
        'select 1 as found from released_owner where account_id = $1::uuid and owner = $2',
        [account_id, owner],
      );
      if (released) throw conflict('already_released', `the records of ${owner} were taken away`);
      const name = requireFull(text);
      const zone = await this.zoneOf(tx, account_id, name);
      checkPlace(name, type, zone);
      const changes = new SetChanges(tx, zone);
      if (override) await clearWay(tx, zone, name, type, changes);
      const set = (await setsAt(tx, zone, name)).find((one) => one.type === type);
      const mine = set?.values.filter((value) => value.owner === owner) ?? [];
      const others = set?.values.filter((value) => value.owner !== owner) ?? [];
      if (others.length > 0 && type !== 'TXT') throw occupied(set!);
      const wanted = wantedValues(type, name, contents, owner, mine);
      if (set && others.some(({ digest }) => wanted.some((value) => value.digest.equals(digest))))
        throw occupied(set);
      const after = set
        ? await changes.replace(set, {
            ttl: others.length > 0 ? set.ttl : ttl,
            values: [...others, ...wanted],
          })
        : await changes.make({ name, type, ttl, values: wanted }).catch((error: unknown) => {
            // A CNAME of the account where an address is wanted, or the reverse.
            if ((error as ApiError).code !== 'dns_cname_conflict') throw error;
            throw conflict('dns_record_conflict', (error as ApiError).message);
          });
      await changes.done();
      return {
        zone_id: zone.id,
        zone_name: zone.name,
        zone_status: zone.status,
        record_ids: wanted.map(({ id }) => id),
        changed: after !== set,
      };
    }, account_id);
  }

  async delete({ account_id, owner, name: text, type }: ManagedDeleteRequest): Promise<ManagedDeleted> {
    const name = text ? requireFull(text) : null;
    return this.database.transaction(async (tx) => {
      await holdOwner(tx, account_id, owner);
      if (name === null && !type)
        await tx.query(
          'insert into released_owner (account_id, owner) values ($1::uuid, $2) on conflict do nothing',
          [account_id, owner],
        );
      const zones = await tx.query<{ zone_id: string }>(
        // One order of locks for everybody who holds several zones.
        'select distinct zone_id from record where account_id = $1::uuid and owner = $2 order by 1',
        [account_id, owner],
      );
      let deleted = 0;
      for (const { zone_id } of zones) {
        const zone = await findZone(tx, account_id, zone_id, true);
        const sets = await readSets(
          tx,
          `s.id in (select rrset_id from record where zone_id = $1::uuid and owner = $2)
           and ($3::text is null or s.name = $3) and ($4::text is null or s.type = $4)`,
          [zone.id, owner, name, type ?? null],
        );
        const changes = new SetChanges(tx, zone);
        for (const set of sets) {
          const values = set.values.filter((value) => value.owner !== owner);
          await changes.replace(set, { ttl: set.ttl, values });
          deleted += set.values.length - values.length;
        }
        await changes.done();
      }
      return { deleted };
    }, account_id);
  }

  /** The account's longest zone that holds a name, its row held. @throws ApiError 404 `no_zone` */
  private async zoneOf(tx: Sql, account: string, name: string): Promise<ZoneRow> {
    const labels = name.split('.');
    const suffixes = labels.map((_, index) => labels.slice(index).join('.')).filter((part) => part !== '');
    const [found] = await tx.query<{ id: string }>(
      'select id from zone where account_id = $1::uuid and name = any($2::text[]) order by length(name) desc limit 1',
      [account, suffixes],
    );
    if (!found) throw new ApiError(404, 'no_zone', `the account has no zone that holds ${name}`);
    return findZone(tx, account, found.id, true);
  }
}

/** Where visitors are sent by: an address and what says it in another way cannot both be right. */
const addressTypes: readonly RecordType[] = ['A', 'AAAA', 'CNAME'];

/** Takes away what the account itself has put at the place of an address; records of other owners stay. */
async function clearWay(tx: Sql, zone: ZoneRow, name: string, type: RecordType, changes: SetChanges) {
  if (!addressTypes.includes(type)) return;
  for (const set of await setsAt(tx, zone, name)) {
    if (!addressTypes.includes(set.type)) continue;
    await changes.replace(set, { ttl: set.ttl, values: set.values.filter((value) => value.owner !== null) });
  }
}

/** Puts and deletes of one owner stand in line: of two at once the later one is the truth. */
async function holdOwner(tx: Sql, account: string, owner: string): Promise<void> {
  await tx.query("select pg_advisory_xact_lock(hashtextextended('owner:' || $1 || '|' || $2, 0))", [
    account,
    owner,
  ]);
}

/** @throws ApiError 422 */
function requireFull(text: string): string {
  const name = fullName(text);
  if (name === null) throw fieldError('name', 'must be a full domain name');
  return name;
}

const occupied = ({ name, type, values }: RecordSet) =>
  conflict(
    'dns_record_conflict',
    `${name} has ${type} records already: ${values
      .map(({ content }) => content)
      .slice(0, 5)
      .join(', ')}`,
  );

function wantedValues(
  type: RecordType,
  name: string,
  contents: readonly string[],
  owner: string,
  mine: readonly Value[],
): Value[] {
  const values = new Map<string, Value>();
  for (const text of contents) {
    const content = requireContent(type, text, name, 'contents');
    const key = content.digest.toString('hex');
    const known = mine.find(({ digest }) => digest.equals(content.digest));
    if (!values.has(key)) values.set(key, known ?? newValue(text, content, owner));
  }
  return [...values.values()];
}
