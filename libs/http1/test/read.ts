import { AnswerParser, type AnswerLimits, answerLimits } from '../src/index.js';

/** What became of some octets. */
export interface ReadAnswer {
  status: number;
  reason: string;
  fields: string[];
  body: string;
  trailers: string[];
}

export type Outcome =
  | { ok: true; answer: ReadAnswer; interim: number[]; rest: number; isKept: boolean }
  | { ok: false; code: string; message: string };

/** Reads one answer with the parser, cut into pieces, through one buffer that is used again and again, as a connection does. */
export function readAnswer(
  pieces: readonly Buffer[],
  isHead = false,
  limits: AnswerLimits = answerLimits,
): Outcome {
  const answer: ReadAnswer = { status: 0, reason: '', fields: [], body: '', trailers: [] };
  const interim: number[] = [];
  const parser = new AnswerParser(
    {
      onInterim: (status) => interim.push(status),
      onHead: (status, reason, fields) => Object.assign(answer, { status, reason, fields }),
      onData: (bytes, start, end) => (answer.body += bytes.toString('latin1', start, end)),
    },
    limits,
  );
  parser.begin(isHead);
  const buffer = Buffer.alloc(Math.max(1, ...pieces.map(({ length }) => length)));
  let rest = 0;
  try {
    for (const piece of pieces) {
      buffer.fill(0x0a);
      piece.copy(buffer);
      rest += piece.length - parser.read(buffer, 0, piece.length);
    }
    if (!parser.isDone) parser.finish();
  } catch (error) {
    return {
      ok: false,
      code: (error as { code?: string }).code ?? 'none',
      message: (error as Error).message,
    };
  }
  return {
    ok: true,
    answer: { ...answer, trailers: parser.trailers },
    interim,
    rest,
    isKept: parser.framing.isKept,
  };
}

/** Numbers that are the same in each run. */
export function randomFrom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Octets in pieces of random sizes. */
export function cutUp(bytes: Buffer, random: (below: number) => number): Buffer[] {
  const pieces: Buffer[] = [];
  const most = [1, 3, 20, 1_000][random(4)]!;
  for (let at = 0; at < bytes.length;) {
    const size = 1 + random(most);
    pieces.push(bytes.subarray(at, at + size));
    at += size;
  }
  return pieces;
}
