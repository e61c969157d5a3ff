/** CPU per chunk of long streams, and how many streams of 50 chunks a second a lane carries. */
import { inRounds, measured, medians } from './measure.mjs';
import { requestOf } from './requests.mjs';
import { row } from './table.mjs';

const enoughStreams = 100;
const goals = { chat: 1.3, messages: 1.8, responses: 1.8 };

/**
 * CPU per chunk of the upstream, in bursts and singly.
 * @param formats that ours answers; the upstream speaks chat, so the others are translated
 */
export async function chunkRows(bench, lanes, formats) {
  const rows = [];
  const ways = [
    ['in bursts of 25', { burst: 25, gap: 5 }],
    ['one by one', { burst: 1, gap: bench.chunkGap, chunks: bench.chunks, timed: true }],
  ];
  for (const [way, behaviour] of ways) {
    await bench.upstream.set({ chunks: 500, ...behaviour });
    const taking = { raw: lanes.raw, pass: lanes.pass, least: lanes.least };
    for (const id of ['one', 'split'].filter((one) => lanes[one])) {
      const taken = bench.isQuick && id === 'split' ? ['chat'] : formats;
      for (const format of taken) taking[`${id} ${format}`] = { ...lanes[id], format };
    }
    const jobOf = (lane) => ({
      ...requestOf(lane, { stream: true, format: lane.format ?? 'chat' }),
      connections: 16,
      spread: 50,
      timed: behaviour.timed ?? false,
      ...(behaviour.timed ? { each: 1 } : { ms: bench.ms }),
    });
    const { rounds } = await inRounds(bench, taking, jobOf);
    const micros = (one) => (one.cpu / one.chunks) * 1e6;
    const cpu = medians(rounds, micros);
    const times = medians(rounds, (one, round) => micros(one) / micros(round.pass));
    const transit = medians(rounds, (one) => one.transit.p50);
    for (const format of formats) {
      const of = (values) => ({
        ...(format === 'chat' ? { pass: values.pass, least: values.least } : {}),
        one: values[`one ${format}`],
        ...(taking[`split ${format}`] ? { split: values[`split ${format}`] } : {}),
      });
      const name = format === 'chat' ? 'chunk chat → chat' : `chunk chat → ${format}`;
      rows.push(row(`CPU of a ${name}, ${way}, µs`, of(cpu)));
      rows.push(row('– times the pass-through', of(times), { digits: 2, goal: { one: goals[format] } }));
      if (!behaviour.timed) continue;
      const raw = format === 'chat' ? { raw: transit.raw } : {};
      rows.push(row('– transit, p50, ms', { ...raw, ...of(transit) }, { digits: 2, goal: { one: 1 } }));
    }
  }
  return { rows, notes: [] };
}

/** The most streams of 50 chunks a second whose chunks' p99 transit is at most 50 ms; steps until one is too many. */
export async function streamCountRows(bench, lanes) {
  const seconds = bench.streamSeconds;
  await bench.upstream.set({ chunks: Math.round(50 * (seconds + 1)), burst: 1, gap: 20, timed: true });
  const most = {};
  const transit = {};
  const ids = bench.isQuick ? ['pass', 'one'] : ['raw', 'pass', 'one', 'split'];
  for (const id of ids.filter((one) => lanes[one])) {
    most[id] = 0;
    for (const streams of bench.streamSteps) {
      const { transit: found } = await measured(bench, lanes[id], {
        ...requestOf(lanes[id], { stream: true }),
        connections: streams,
        each: 1,
        spread: 1_000,
        timed: true,
        from: 1_000,
      });
      if (found.p99 > 50) break;
      most[id] = streams;
      transit[id] = found.p99;
    }
  }
  const [last] = bench.streamSteps.slice(-1);
  // What a bare pass-through cannot carry is the machine's trouble.
  const isTold = most.pass >= enoughStreams;
  return {
    rows: [
      row(`streams of 50 chunks/s at p99 ≤ 50 ms, of at most ${last}`, most, {
        digits: 0,
        goal: isTold ? { one: enoughStreams } : {},
        atLeast: true,
      }),
      row('– transit p99 of these, ms', transit, { digits: 1 }),
    ],
    notes: isTold
      ? []
      : ['Number of streams: the machine was too busy for the pass-through itself, so no verdict'],
  };
}
