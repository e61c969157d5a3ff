import { type RecordType, recordTypes } from '@nebo/contracts';
import { conflict, fieldError } from '@nebo/service-kit';
import { type Content, ContentError, parseContent } from '../data/content.js';
import { recordName } from '../data/names.js';
import type { ZoneRow } from '../zones/zone.rows.js';
import { isManaged, newValue, type RecordSet, type Value } from './set-store.js';

/**
 * The type of a body.
 * @throws ApiError 422
 */
export function requireType(text: string): RecordType {
  const type = text.toUpperCase() as RecordType;
  if (!recordTypes.includes(type))
    throw fieldError('type', `must be one of ${recordTypes.join(', ')}`, 'enum');
  return type;
}

/**
 * The name of a body, in its zone.
 * @throws ApiError 422
 */
export function requireName(text: string, zone: ZoneRow): string {
  const name = recordName(text, zone.name);
  if (name === null)
    throw fieldError(
      'name',
      `must be a name in ${zone.name} of letters, digits, hyphens and underscores; only a whole leftmost label may be *`,
    );
  return name;
}

/**
 * What may stand at a name at all.
 * @throws ApiError 422
 */
export function checkPlace(name: string, type: RecordType, zone: ZoneRow): void {
  const apex = name === zone.name;
  if (apex && type === 'CNAME')
    throw fieldError(
      'type',
      'the zone itself cannot be a CNAME: it has SOA and NS records (RFC 1034, 3.6.2)',
    );
  if (apex && type === 'NS')
    throw fieldError(
      'type',
      'the NS records of the zone itself are the platform’s: see nameservers of the zone',
    );
  if (type === 'NS' && name.startsWith('*.'))
    throw fieldError('type', 'a wildcard cannot be delegated (RFC 4592, 4.2)');
}

/**
 * A value of a body.
 * @param field `content`, or the list's name
 * @throws ApiError 422
 */
export function requireContent(type: RecordType, text: string, name: string, field: string): Content {
  try {
    const content = parseContent(type, text);
    if (type === 'CNAME' && content.target === name) throw new ContentError('must not point to its own name');
    return content;
  } catch (error) {
    if (error instanceof ContentError) throw fieldError(field, `${type}: ${error.message}`);
    throw error;
  }
}

/**
 * The values of a set's body; those that the set has already keep their ids.
 * @throws ApiError 422 for a bad or repeated value, or a CNAME of several
 */
export function requireValues(
  type: RecordType,
  name: string,
  texts: readonly string[],
  known: readonly Value[] = [],
): Value[] {
  if (type === 'CNAME' && texts.length > 1) throw fieldError('records', 'a CNAME has one value');
  const byDigest = new Map(known.map((value) => [value.digest.toString('hex'), value]));
  const seen = new Set<string>();
  return texts.map((text) => {
    const content = requireContent(type, text, name, 'records');
    const digest = content.digest.toString('hex');
    if (seen.has(digest)) throw fieldError('records', 'the values must be distinct');
    seen.add(digest);
    const same = byDigest.get(digest);
    return same ? { ...same, content: text, ...bytesOf(content) } : newValue(text, content);
  });
}

const bytesOf = ({ rdata, digest }: Content) => ({ rdata, digest });

/** @throws ApiError 409 for a set with values of the platform */
export function refuseManaged(set: RecordSet): void {
  if (isManaged(set)) throw managed(set);
}

export const managed = ({ name, type }: Pick<RecordSet, 'name' | 'type'>) =>
  conflict(
    'dns_record_managed',
    `${name} ${type} is kept by the platform for one of your resources; it goes with that resource`,
  );
