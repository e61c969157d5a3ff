/** Time from a client's leaving until its request at the upstream is closed. */
import { pause } from './parts.mjs';
import { formats as known, requestOf } from './requests.mjs';
import { row } from './table.mjs';

/** A client leaves so long after its request. Milliseconds. */
const leavesAfter = 150;
/** Nothing is waited for longer than this. Milliseconds. */
const patience = 3_000;
/** Aborts of one key: more of them in an hour, and its answers are read to their end on purpose. */
const ofOneKey = 3;
/** The quick form asks the one process once, in the formats that are not chat. */
const lanesOf = (bench, format) => (bench.isQuick && format !== 'chat' ? ['one'] : ['pass', 'one', 'split']);

const times = {
  'before the first byte': { wait: 20_000 },
  'after the first byte': { chunks: 100_000, burst: 1, gap: 20 },
};

/** @returns milliseconds, or NaN when nothing was closed in time */
async function leave({ generator, upstream }, job) {
  const before = (await upstream.counts()).closedAt.length;
  const { abortedAt } = await generator.run({ ...job, connections: 1, abortAfter: leavesAfter });
  for (const end = performance.now() + patience; performance.now() < end; await pause(20)) {
    const { closedAt } = await upstream.counts();
    if (closedAt.length > before) return closedAt[before] - abortedAt;
  }
  return NaN;
}

/** @param formats that ours answers */
export async function abortRows(bench, lanes, formats) {
  const rows = [];
  for (const format of formats) {
    for (const stream of [true, false]) {
      for (const [when, behaviour] of Object.entries(times)) {
        await bench.upstream.set(behaviour);
        const worst = {};
        for (const id of lanesOf(bench, format).filter((one) => lanes[one])) {
          const lane = lanes[id];
          // The pass-through asks for what it was asked: only ours streams what is plain for the client.
          if (!lane.isOurs && (format !== 'chat' || (!stream && when === 'after the first byte'))) continue;
          const headers = lane.newKey ? { authorization: `Bearer ${await lane.newKey()}` } : lane.headers;
          const found = [];
          for (let turn = 0; turn < (bench.isQuick ? 1 : ofOneKey); turn += 1) {
            found.push(await leave(bench, requestOf({ ...lane, headers }, { format, stream })));
          }
          worst[id] = found.includes(NaN) ? Infinity : Math.max(...found);
        }
        rows.push(
          row(
            `upstream closed, ${known[format].path} ${stream ? 'streamed' : 'plain'}, left ${when}, worst, ms`,
            worst,
            {
              digits: 0,
              goal: { one: 200, split: 200 },
            },
          ),
        );
      }
    }
  }
  return { rows, notes: [] };
}
