import { crc32 } from 'node:zlib';
import type { SliceSettlement } from '@nebo/contracts';

/** A line of the log: checksum (8 hex digits), a space, JSON. */
export function lineOf(settlement: SliceSettlement): string {
  const json = JSON.stringify(settlement);
  return `${sumOf(json)} ${json}\n`;
}

const sumOf = (json: string): string => crc32(json).toString(16).padStart(8, '0');

/** What a segment holds after a crash. */
export interface ReadSegment {
  settlements: SliceSettlement[];
  /** Numbers of lines (from 1) that are damaged although others follow: not the trace of a crash. */
  corrupt: number[];
  /** Bytes of a last line that was never written to its end; nobody was answered on the strength of it. */
  torn: number;
}

/** Reads a segment; a line counts only when its checksum is right. */
export function readSegment(bytes: Buffer): ReadSegment {
  const read: ReadSegment = { settlements: [], corrupt: [], torn: 0 };
  let bad: { line: number; size: number }[] = [];
  let line = 0;
  for (let at = 0; at < bytes.length;) {
    const end = bytes.indexOf(10, at);
    const next = end < 0 ? bytes.length : end + 1;
    line += 1;
    const settlement = end < 0 ? null : parse(bytes.toString('utf8', at, end));
    if (!settlement) bad.push({ line, size: next - at });
    else {
      read.corrupt.push(...bad.map((one) => one.line));
      bad = [];
      read.settlements.push(settlement);
    }
    at = next;
  }
  // Damage at the very end is the write that the crash cut; its pieces may hold line ends.
  read.torn = bad.reduce((sum, { size }) => sum + size, 0);
  return read;
}

function parse(line: string): SliceSettlement | null {
  const json = line.slice(9);
  if (line[8] !== ' ' || sumOf(json) !== line.slice(0, 8)) return null;
  try {
    return JSON.parse(json) as SliceSettlement;
  } catch {
    return null;
  }
}
