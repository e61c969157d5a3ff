import type { RecordType } from '@nebo/contracts';

/** A zone without its data. */
export interface ZoneHead {
  id: string;
  account_id: string;
  /** Canonical: absolute, lower case. */
  name: string;
  /** Delegated to us; otherwise answered only where that can harm nobody. */
  active: boolean;
  /** When it was made, milliseconds: of several pending zones of one name the first is answered. */
  created_at: number;
  /** Of the SOA, 32 bits. */
  serial: number;
  /** Seconds; of sets that have no TTL. */
  default_ttl: number;
}

/** One set of a name. */
export interface SetData {
  type: RecordType;
  /** Seconds; null: the zone's default. */
  ttl: number | null;
  /** Wire form of each value, names without compression. */
  rdata: Buffer[];
}

/** All sets of a name; none: the name has no records any more. */
export interface NameData {
  /** Canonical. */
  name: string;
  sets: SetData[];
}

/**
 * Who answers for the zones. Idempotent and safe to call again at any time, like every driver; what was given stands until
 * something else is given, so answers go on while the database is away.
 */
export interface DnsDriver {
  /** For people: `builtin`. */
  readonly name: string;
  /** Starts answering. @returns the port, the same for UDP and TCP */
  open(): Promise<number>;
  /** Makes a zone just this. */
  ensure(zone: ZoneHead, names: Iterable<NameData>): void;
  /** Gives a known zone another head and some names other sets. @returns false for a zone that is not known */
  change(zone: ZoneHead, names: Iterable<NameData>): boolean;
  /** Forgets a zone; one that is not known is forgotten already. */
  remove(id: string): void;
  /** The head of a zone that it answers from. */
  head(id: string): ZoneHead | undefined;
  /** What it answers from. */
  list(): ZoneHead[];
  /** Counts since the start. */
  figures(): DnsFigures;
  close(): Promise<void>;
}

/** What a driver counts. */
export interface DnsFigures {
  /** Answers by their response code, as `NOERROR`. */
  answers: Readonly<Record<string, number>>;
  /** Packets that got none: responses, rubbish, beyond the rate. */
  dropped: number;
}
