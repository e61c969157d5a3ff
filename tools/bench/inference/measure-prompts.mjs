/** What a prompt of a megabyte takes longer, and what it does to others. */
import { inRounds, median, medians } from './measure.mjs';
import { pause, quantile } from './parts.mjs';
import { longPrompt, requestOf } from './requests.mjs';
import { row } from './table.mjs';

const megabyte = 1_000_000;
/** Long prompts under way at once: the goal is about one; four show what is added when they meet. */
const groups = [1, 4];
/** Small requests begin so far apart. Milliseconds. */
const apart = 4;

export async function promptRows(bench, lanes) {
  const prompt = longPrompt(megabyte);
  const taking = Object.fromEntries(
    ['raw', 'pass', 'one', 'split'].filter((id) => lanes[id]).map((id) => [id, lanes[id]]),
  );
  await bench.upstream.set();
  const { rounds } = await inRounds(bench, taking, (lane) => ({
    ...requestOf(lane, { prompt }),
    connections: 1,
    ms: bench.ms,
  }));
  const added = medians(rounds, (one, round) => one.latency.p50 - round.raw.latency.p50);
  const harms = [];
  for (const together of groups) {
    const harm = {};
    for (const [id, lane] of Object.entries(taking)) {
      const found = [];
      for (let turn = 0; turn < bench.harmRounds; turn += 1)
        found.push(await harmOf(bench, lane, prompt, together));
      harm[id] = median(found);
    }
    harms.push(harm);
  }
  const goal = { one: 25, split: 25 };
  const [alone, meeting] = harms;
  const { pass, one, split } = added;
  return {
    rows: [
      row(
        'added to a prompt of 1 MB, p50, ms',
        { pass, one, ...(split === undefined ? {} : { split }) },
        { goal },
      ),
      row('harm of such a prompt to the p99 of small requests, ms', alone, { goal }),
      row(`– of ${groups[1]} at once`, meeting),
    ],
    notes: [],
  };
}

/** p99 of the small requests that ran beside groups of long ones, less the p99 of the others. */
async function harmOf({ generator, second, harmMs }, lane, prompt, together) {
  const small = generator.run({
    ...requestOf(lane),
    connections: 200,
    every: apart,
    ms: 2 * harmMs,
    detail: true,
  });
  // Quiet first, then the groups.
  await pause(harmMs);
  const times = [];
  for (const end = performance.now() + harmMs * 0.9; performance.now() < end; await pause(60)) {
    const { spans } = await second.run({
      ...requestOf(lane, { prompt }),
      connections: together,
      each: 1,
      detail: true,
    });
    times.push([Math.min(...spans.map(([begun]) => begun)), Math.max(...spans.map(([, ended]) => ended))]);
  }
  const beside = [];
  const quiet = [];
  for (const [begun, ended] of (await small).spans) {
    if (times.some(([from, to]) => begun < to && ended > from)) beside.push(ended - begun);
    else if (ended < times[0][0]) quiet.push(ended - begun);
  }
  return quantile(beside, 0.99) - quantile(quiet, 0.99);
}
