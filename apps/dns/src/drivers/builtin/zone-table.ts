import { wireKey } from '../../data/names.js';
import type { NameData, ZoneHead } from '../dns-driver.js';
import { type Authority, type NameKey, parentOf, ZoneData } from './zone-data.js';

/** All zones, and which one answers for a name. */
export class ZoneTable {
  private readonly byId = new Map<string, ZoneData>();
  private readonly byName = new Map<NameKey, ZoneData[]>();
  /** A new object when another zone may answer for some name. */
  version: object = {};

  constructor(private readonly authority: Authority) {}

  ensure(head: ZoneHead, names: Iterable<NameData>): void {
    this.remove(head.id);
    const zone = new ZoneData(head, this.authority);
    zone.change(head, names);
    this.byId.set(head.id, zone);
    this.rank(zone.apex, [...(this.byName.get(zone.apex) ?? []), zone]);
  }

  change(head: ZoneHead, names: Iterable<NameData>): boolean {
    const zone = this.byId.get(head.id);
    if (!zone || zone.apex !== wireKey(head.name)) return false;
    const wasActive = zone.head.active;
    zone.change(head, names);
    if (wasActive !== head.active) this.rank(zone.apex, this.byName.get(zone.apex)!);
    return true;
  }

  remove(id: string): void {
    const zone = this.byId.get(id);
    if (!zone) return;
    this.byId.delete(id);
    this.rank(
      zone.apex,
      this.byName.get(zone.apex)!.filter((other) => other !== zone),
    );
  }

  head(id: string): ZoneHead | undefined {
    return this.byId.get(id)?.head;
  }

  list(): ZoneHead[] {
    return [...this.byId.values()].map(({ head }) => head);
  }

  /**
   * The zone that answers for a name: the longest one that holds it. A pending zone below an active one of another account
   * does not answer: anybody may create `www.example.com`, and only a delegation by its parent makes it theirs.
   * @returns null when there is none
   */
  find(key: NameKey): ZoneData | null {
    let found: ZoneData | null = null;
    for (let name = key; name !== ''; name = parentOf(name)) {
      const zone = this.byName.get(name)?.[0];
      if (!zone) continue;
      if (!found) found = zone;
      else if (zone.head.active && !found.head.active && zone.head.account_id !== found.head.account_id)
        found = zone;
      if (found.head.active) return found;
    }
    return found;
  }

  /** Of one name the active zone answers, or else the one that was first. */
  private rank(apex: NameKey, zones: ZoneData[]): void {
    zones.sort(
      (a, b) =>
        Number(b.head.active) - Number(a.head.active) ||
        a.head.created_at - b.head.created_at ||
        (a.head.id < b.head.id ? -1 : 1),
    );
    if (zones.length > 0) this.byName.set(apex, zones);
    else this.byName.delete(apex);
    this.version = {};
  }
}
