/** What all measures share: rounds that follow each other closely, CPU without what a lane uses at rest, raw as the judge. */
import { cpuOf, quantile } from './parts.mjs';

/** Raw may vary by so much within a round; beyond it the round is done again, at most half as often as there are rounds. */
const mostVariation = 1.25;

export const median = (values) => quantile(values, 0.5);

/**
 * Runs a job on a lane and says what it cost there.
 * @param bench generator, upstream
 * @returns the generator's result with `cpu` and `database`, seconds, and `chunks` that the upstream sent
 */
export async function measured({ generator, upstream }, lane, job) {
  const database = lane.database();
  const before = { cpu: cpuOf(lane.pids), database: cpuOf(database), counts: await upstream.counts() };
  const began = performance.now();
  const result = await generator.run(job);
  const seconds = (performance.now() - began) / 1_000;
  const cpu = cpuOf(lane.pids) - before.cpu - lane.idle * seconds;
  const { chunks } = await upstream.counts();
  return {
    ...result,
    cpu: Math.max(0, cpu),
    database: cpuOf(database) - before.database,
    chunks: chunks - before.counts.chunks,
  };
}

/**
 * Measures the lanes in turn, round by round, with raw before and after each round.
 * @param bench what `measured` needs
 * @param {Record<string, object>} lanes by id; `raw` among them
 * @param {(lane: object) => object} jobOf
 * @param {number} count of rounds
 * @returns {Promise<{ rounds: Record<string, object>[], disturbed: number }>} results by lane of each round that is kept, and
 *   how many of them raw says are disturbed
 */
export async function inRounds(bench, lanes, jobOf, count = bench.otherRounds) {
  const rounds = [];
  let disturbed = 0;
  let repeats = Math.floor(count / 2);
  const raw = () => measured(bench, lanes.raw, jobOf(lanes.raw));
  while (rounds.length < count) {
    const results = { raw: await raw() };
    for (const [id, lane] of Object.entries(lanes)) {
      if (id !== 'raw') results[id] = await measured(bench, lane, jobOf(lane));
    }
    const after = await raw();
    const speeds = [results.raw, after].map(({ requests, seconds }) => requests / seconds);
    if (Math.max(...speeds) > mostVariation * Math.min(...speeds)) {
      if (repeats > 0) {
        repeats -= 1;
        continue;
      }
      disturbed += 1;
    }
    rounds.push(results);
  }
  return { rounds, disturbed };
}

/** The median over rounds of a figure of each lane. @param {(result: object, round: object) => number} figure */
export function medians(rounds, figure) {
  const ids = Object.keys(rounds[0]);
  return Object.fromEntries(ids.map((id) => [id, median(rounds.map((round) => figure(round[id], round)))]));
}
