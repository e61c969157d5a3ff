import { decodeName } from './paths.js';
import { ArchiveRefused } from './refused.js';

/** What pax and GNU headers say about the entry that follows them. */
export interface Overrides {
  path?: string;
  linkpath?: string;
  size?: number;
}

const bad = () =>
  new ArchiveRefused(
    'bad_header',
    'an extended (pax) header is damaged. Pack the folder again with another tool.',
  );

/** The records of a pax header, `"<length> <key>=<value>\n"`, read strictly. */
function* records(body: Buffer): Generator<[string, Buffer]> {
  let at = 0;
  while (at < body.length) {
    const space = body.indexOf(0x20, at);
    if (space < 0 || space === at || space - at > 8) throw bad();
    const digits = body.toString('latin1', at, space);
    if (!/^[1-9]\d*$/.test(digits)) throw bad();
    const end = at + Number(digits);
    if (end > body.length || end <= space + 2 || body[end - 1] !== 0x0a) throw bad();
    const equals = body.indexOf(0x3d, space + 1);
    if (equals < 0 || equals >= end - 1 || equals === space + 1) throw bad();
    yield [body.toString('utf8', space + 1, equals), body.subarray(equals + 1, end - 1)];
    at = end;
  }
}

/**
 * Reads one pax header into `into`.
 * @param global a header for all following entries (git writes one with its commit): it may not rename or resize
 * @throws ArchiveRefused bad_header, path_override, sparse, size_field, path_encoding, path_control
 */
export function readPax(body: Buffer, global: boolean, into: Overrides): void {
  const seen = new Set<string>();
  for (const [key, value] of records(body)) {
    if (key.startsWith('GNU.sparse.') || key === 'SCHILY.realsize' || key === 'GNU.sparse')
      throw new ArchiveRefused('sparse', 'it holds a sparse file. Pack without --sparse.');
    if (key === 'hdrcharset' && value.toString('latin1') !== 'ISO-IR 10646 2000 UTF-8')
      throw new ArchiveRefused('path_encoding', 'its names are not in UTF-8. Pack the folder again.');
    if (key !== 'path' && key !== 'linkpath' && key !== 'size') continue;
    if (global)
      throw new ArchiveRefused(
        'path_override',
        `a header sets "${key}" for all entries. Pack the folder again.`,
      );
    if (seen.has(key))
      throw new ArchiveRefused('path_override', `a header sets "${key}" twice. Pack the folder again.`);
    seen.add(key);
    if (key === 'size') {
      const text = value.toString('latin1');
      if (!/^\d{1,15}$/.test(text))
        throw new ArchiveRefused('size_field', 'a header has a size that is no size. Pack the folder again.');
      into.size = Number(text);
    } else set(into, key, decodeName(value));
  }
}

/** Reads a GNU long name (`L`) or long link (`K`): the text up to its final NUL. */
export function readGnuLong(body: Buffer, key: 'path' | 'linkpath', into: Overrides): void {
  const end = body.indexOf(0);
  const text = end < 0 ? body : body.subarray(0, end);
  if (end >= 0 && body.subarray(end).some((byte) => byte !== 0))
    throw new ArchiveRefused('path_control', 'a long name holds a NUL. Rename the file and pack again.');
  set(into, key, decodeName(text));
}

function set(into: Overrides, key: 'path' | 'linkpath', value: string): void {
  if (into[key] !== undefined && into[key] !== value)
    throw new ArchiveRefused(
      'path_override',
      `two headers give one entry different names. Pack the folder again.`,
    );
  if (value.includes('\0'))
    throw new ArchiveRefused('path_control', 'a name holds a NUL. Rename the file and pack again.');
  into[key] = value;
}
