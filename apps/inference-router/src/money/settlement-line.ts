import { crc32 } from 'node:zlib';
import type { SliceSettlement } from '@nebo/contracts';

/**
 * A line of the log: checksum of the rest (8 hex digits), a space, where in the file the write that it belongs to begins
 * (bytes; missing in lines of older versions, each of which counts as a write of its own), a space, JSON.
 */
export function lineOf(settlement: SliceSettlement, write?: number): string {
  const json = JSON.stringify(settlement);
  const rest = write === undefined ? json : `${write} ${json}`;
  return `${sumOf(rest)} ${rest}\n`;
}

const sumOf = (text: string): string => crc32(text).toString(16).padStart(8, '0');

/** What a segment holds after a crash. */
export interface ReadSegment {
  settlements: SliceSettlement[];
  /** Numbers of lines (from 1) whose damage is not the trace of a crash. */
  corrupt: number[];
  /** Bytes of a last write that did not get to the disk whole; nobody was answered on the strength of it. */
  torn: number;
}

/**
 * Reads a segment; a line counts only when its checksum is right. The zeros at the end are room that was never used. Of the
 * last write any part may be missing, since a disk that loses power keeps its sectors in any order.
 */
export function readSegment(file: Buffer): ReadSegment {
  const bytes = file.subarray(0, usedOf(file));
  const settlements: SliceSettlement[] = [];
  const bad: { line: number; at: number; size: number; isHole: boolean }[] = [];
  let lastWrite = 0;
  let line = 0;
  for (let at = 0; at < bytes.length;) {
    const end = bytes.indexOf(10, at);
    const next = end < 0 ? bytes.length : end + 1;
    line += 1;
    const found = end < 0 ? null : parse(bytes.toString('utf8', at, end));
    if (found) {
      settlements.push(found.settlement);
      lastWrite = found.write ?? at;
    } else {
      // What did not get to the disk is still room, or is not there; bytes that are wrong were there once.
      const isHole = end < 0 || bytes.subarray(at, end).includes(0);
      bad.push({ line, at, size: next - at, isHole });
    }
    at = next;
  }
  const isTorn = ({ at, isHole }: (typeof bad)[number]) => isHole && at >= lastWrite;
  return {
    settlements,
    corrupt: bad.filter((one) => !isTorn(one)).map((one) => one.line),
    torn: bad.filter(isTorn).reduce((sum, { size }) => sum + size, 0),
  };
}

function usedOf(file: Buffer): number {
  let end = file.length;
  while (end > 0 && file[end - 1] === 0) end -= 1;
  return end;
}

const shape = /^([0-9a-f]{8}) ((?:(\d+) )?(\{.*))$/s;

function parse(line: string): { settlement: SliceSettlement; write: number | undefined } | null {
  const [, sum, rest, write, json] = shape.exec(line) ?? [];
  if (rest === undefined || sumOf(rest) !== sum) return null;
  try {
    const settlement = JSON.parse(json!) as SliceSettlement;
    return { settlement, write: write === undefined ? undefined : Number(write) };
  } catch {
    return null;
  }
}
