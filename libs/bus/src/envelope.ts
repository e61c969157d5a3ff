import { randomUUID } from 'node:crypto';

/** What travels on the bus, is stored in the outbox and is shown in logs: the same fields for every event. */
export interface Envelope<T = unknown> {
  /** uuid; the key by which doubles are dropped everywhere. */
  id: string;
  /** The subject, `nebo.<service>.<kind>.<event>.v1`. */
  type: string;
  /** RFC 3339, when it was said. */
  time: string;
  /** The account it is about, or null. */
  account: string | null;
  /** W3C `traceparent` of the request that caused it, or null. */
  trace: string | null;
  /** The payload; it only ever gains optional fields (interfaces.md, section 1). */
  data: T;
}

/** What an envelope says besides its payload; everything has a default. */
export interface EventContext {
  account?: string | null;
  trace?: string | null;
  id?: string;
  time?: Date;
}

/** A typed event: call it with a payload to get an envelope. */
export interface EventDefinition<T> {
  (data: T, context?: EventContext): Envelope<T>;
  readonly subject: string;
}

/** The payload type of a definition: `DataOf<typeof says.vmWanted>`. */
export type DataOf<D> = D extends EventDefinition<infer T> ? T : never;

/**
 * Largest encoded envelope in bytes. NATS refuses more than 1 MiB by default; a row that can never be sent would
 * hold up the whole outbox, so the writer is told instead.
 */
export const maxEventBytes = 256 * 1024;

const subjectForm = /^nebo\.[a-z0-9_-]+\.[a-z0-9_-]+\.[a-z0-9_-]+\.v[1-9][0-9]*$/;
const uuidForm = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * Declares an event that a service says, for the `says` of its `events.ts`.
 * @param subject `nebo.<service>.<kind>.<event>.v1`
 * @throws TypeError when the subject has another form
 */
export function defineEvent<T>(subject: string): EventDefinition<T> {
  checkSubject(subject);
  const make = (data: T, context: EventContext = {}): Envelope<T> => ({
    id: context.id ?? randomUUID(),
    type: subject,
    time: (context.time ?? new Date()).toISOString(),
    account: context.account ?? null,
    trace: context.trace ?? null,
    data,
  });
  return Object.assign(make, { subject });
}

/** @throws TypeError when this is no subject of an event; wildcards are not allowed here */
export function checkSubject(subject: string): void {
  if (!subjectForm.test(subject)) {
    throw new TypeError(`unknown subject "${subject}": expected nebo.<service>.<kind>.<event>.v1`);
  }
}

/** @throws TypeError when this is no pattern under `nebo.`; `*` stands for one word, a last `>` for the rest */
export function checkPattern(pattern: string): void {
  const words = pattern.split('.');
  const legal = words.every(
    (word, index) =>
      word === '*' || (word === '>' && index === words.length - 1) || /^[a-z0-9_-]+$/.test(word),
  );
  if (!legal || words[0] !== 'nebo' || words.length < 2) {
    throw new TypeError(`not a subject pattern under nebo.: "${pattern}"`);
  }
}

/** Whether a subject falls under a pattern, by NATS's rules. */
export function matches(pattern: string, subject: string): boolean {
  const wanted = pattern.split('.');
  const words = subject.split('.');
  for (const [index, word] of wanted.entries()) {
    if (word === '>') return words.length > index;
    if (index >= words.length || (word !== '*' && word !== words[index])) return false;
  }
  return wanted.length === words.length;
}

/** Whether this is an envelope that may be sent: what came from a store or from the wire is not believed. */
export function isEnvelope(value: unknown): value is Envelope {
  if (typeof value !== 'object' || value === null) return false;
  const { id, type, time, account, trace } = value as Record<string, unknown>;
  return (
    typeof id === 'string' &&
    uuidForm.test(id) &&
    typeof type === 'string' &&
    subjectForm.test(type) &&
    typeof time === 'string' &&
    (account === null || typeof account === 'string') &&
    (trace === null || typeof trace === 'string') &&
    'data' in value
  );
}

/**
 * The envelope as JSON text.
 * @throws TypeError for a wrong field or an unknown subject
 * @throws RangeError when it is larger than `maxEventBytes`
 */
export function encodeEnvelope(envelope: Envelope): string {
  checkSubject(envelope.type);
  if (!isEnvelope(envelope)) throw new TypeError(`not an event envelope: ${(envelope as Envelope).type}`);
  // `undefined` would vanish on the way and the receiver would refuse an envelope without data.
  const text = JSON.stringify(envelope.data === undefined ? { ...envelope, data: null } : envelope);
  const bytes = Buffer.byteLength(text);
  if (bytes > maxEventBytes) {
    throw new RangeError(`event ${envelope.type} has ${bytes} bytes, more than ${maxEventBytes}`);
  }
  return text;
}
