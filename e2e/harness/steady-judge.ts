import { type Answer, type Stream } from './steady-load.js';

/** A change of an app under load. */
export interface Change {
  name: string;
  sentAt: number;
  /** Whether it makes new replicas for all old ones. */
  replaces: boolean;
  /** What answers carry after it. */
  version: string;
  epoch: string;
  /** New starts that may answer because of it. */
  starts: number;
}

/** Answers of one generation of replicas. */
export interface Generation {
  /** The start that answered first; others came with a larger count, and go with it. */
  first: string;
  /** When the first request that it answered was sent: the routes led to it by then. */
  firstAt: number;
}

export interface Verdict {
  /** Sentences about what ought not to be. */
  wrong: string[];
  /** How many starts first answered after each change. */
  startsByChange: number[];
  /** By replacing changes, in order. */
  generations: Generation[];
}

/**
 * Judges all answers of a load: each is good, carries what its generation carries, and none is older than one that was
 * there before it was asked for.
 */
export function judgeAnswers(answers: readonly Answer[], changes: readonly Change[]): Verdict {
  const wrong = answers
    .filter((answer) => answer.wrong !== null)
    .map((answer) => `${name(answer, changes)} answered ${answer.status}: ${answer.wrong}`);
  const good = answers.filter((answer) => answer.wrong === null).sort((a, b) => a.doneAt - b.doneAt);
  const replacing = changes.filter(({ replaces }) => replaces);
  const generations: Generation[] = replacing.map(() => ({ first: '', firstAt: Infinity }));
  const startsByChange = changes.map(() => 0);
  const generationOf = new Map<string, number>();
  for (const { start, doneAt } of good) {
    if (generationOf.has(start)) continue;
    const generation = replacing.findLastIndex(({ sentAt }) => sentAt <= doneAt);
    generationOf.set(start, generation);
    generations[generation]!.first ||= start;
    const change = changes.findLastIndex(({ sentAt }) => sentAt <= doneAt);
    startsByChange[change]!++;
  }
  for (const answer of good) {
    const generation = generations[generationOf.get(answer.start)!]!;
    generation.firstAt = Math.min(generation.firstAt, answer.sentAt);
    const { version, epoch } = replacing[generationOf.get(answer.start)!]!;
    if (answer.version !== version || answer.epoch !== epoch)
      wrong.push(
        `${name(answer, changes)} came from version ${answer.version}, variables ${answer.epoch}: not those of its start`,
      );
  }
  const bySent = [...good].sort((a, b) => a.sentAt - b.sentAt);
  let newest = 0;
  let done = 0;
  for (const answer of bySent) {
    for (; done < good.length && good[done]!.doneAt < answer.sentAt; done++)
      newest = Math.max(newest, generationOf.get(good[done]!.start)!);
    if (generationOf.get(answer.start)! < newest)
      wrong.push(`${name(answer, changes)} was answered by an older version than one before it`);
  }
  return { wrong, startsByChange, generations };
}

/**
 * Judges streams: none ends before its replica has been replaced and its drain time is over, and each is told.
 * @param drainMs what old replicas have for their streams
 */
export function judgeStreams(
  streams: readonly Stream[],
  generations: readonly Generation[],
  drainMs: number,
): string[] {
  const wrong: string[] = [];
  for (const { kind, start, openedAt, endedAt, whole, tail, byUs } of streams) {
    if (byUs) continue;
    const lived = `${kind} of ${Math.round(endedAt - openedAt)} ms`;
    if (start === '') wrong.push(`${kind} was not opened`);
    else if (!whole) wrong.push(`${lived} was cut after ${JSON.stringify(tail)}`);
    const own = generations.findIndex(({ first }) => first === start);
    if (own < 0) continue;
    const next = generations[own + 1];
    // The routes may have led on for as long as nobody asked.
    if (!next || endedAt < next.firstAt - 300 + drainMs) wrong.push(`${lived} had no time to end`);
  }
  return wrong;
}

function name(answer: Answer, changes: readonly Change[]): string {
  const after = changes.findLast(({ sentAt }) => sentAt <= answer.sentAt);
  const since = Math.round(answer.sentAt - (after?.sentAt ?? 0));
  return `${answer.what}, ${since} ms after "${after?.name}", ${Math.round(answer.doneAt - answer.sentAt)} ms long,`;
}
