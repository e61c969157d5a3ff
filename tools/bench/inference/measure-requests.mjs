/** CPU per request and requests per second at 16 connections; added time at one; memory while 64 streams run. */
import { inRounds, medians } from './measure.mjs';
import { pause } from './parts.mjs';
import { requestOf } from './requests.mjs';
import { row } from './table.mjs';

const without = (lanes, name) => Object.fromEntries(Object.entries(lanes).filter(([id]) => id !== name));
const processes = (values) => without(values, 'raw');

/** CPU per request: at most so many times the pass-through (facts of the gateway, 3). */
const cpuGoals = { one: 1.3, split: 2.2 };

/** Plain and streamed requests, each lane in turn. */
export async function requestRows(bench, lanes) {
  const rows = [];
  const notes = [];
  for (const stream of [false, true]) {
    const name = stream ? 'streamed request of 10 chunks' : 'plain request';
    // The peer answers streams with 500 on this Node, so it takes part in plain requests only.
    const taking = stream && !bench.peerStreams ? without(lanes, 'peer') : lanes;
    await bench.upstream.set();
    const jobOf = (lane) => ({ ...requestOf(lane, { stream }), connections: 16, ms: bench.ms });
    for (const lane of Object.values(taking)) await bench.generator.run({ ...jobOf(lane), ms: bench.warmMs });
    const { rounds, disturbed } = await inRounds(bench, taking, jobOf, bench.rounds);
    if (disturbed > 0)
      notes.push(`${name}: raw varied by more than 25 % in ${disturbed} of ${rounds.length} rounds`);
    const micros = (one) => (one.cpu / one.requests) * 1e6;
    const database = processes(medians(rounds, (one) => (one.database / one.requests) * 1e6));
    rows.push(
      row(`CPU of a ${name}, µs (+ PostgreSQL)`, processes(medians(rounds, micros)), {
        of: { one: database.one, split: database.split },
      }),
      row(
        '– times the pass-through',
        processes(medians(rounds, (one, round) => micros(one) / micros(round.pass))),
        { digits: 2, goal: cpuGoals },
      ),
    );
    const perSecond = (one) => one.requests / one.seconds;
    rows.push(row('– requests per second, 16 connections', medians(rounds, perSecond), { digits: 0 }));
    rows.push(
      row(
        '– part of raw',
        medians(rounds, (one, round) => perSecond(one) / perSecond(round.raw)),
        { digits: 2 },
      ),
    );
    if (taking.peer) {
      const { one, split } = medians(rounds, (result, round) => micros(round.peer) / micros(result));
      rows.push(row('– CPU of the peer, times ours', { one, split }, { goal: { one: 12 }, atLeast: true }));
      const speed = medians(rounds, (result, round) => perSecond(result) / perSecond(round.peer));
      rows.push(
        row(
          '– requests per second, times the peer’s',
          { one: speed.one, split: speed.split },
          {
            goal: { one: 10 },
            atLeast: true,
          },
        ),
      );
    }
  }
  return { rows, notes };
}

/** What a request takes longer than straight from the upstream, one at a time. */
export async function addedTimeRows(bench, lanes) {
  const rows = [];
  const goal = { one: 1, split: 1 };
  await bench.upstream.set();
  for (const stream of [false, true]) {
    const jobOf = (lane) => ({ ...requestOf(lane, { stream }), connections: 1, ms: bench.ms });
    const { rounds } = await inRounds(bench, without(lanes, 'peer'), jobOf);
    const added = (part, at) =>
      processes(medians(rounds, (one, round) => one[part][at] - round.raw[part][at]));
    const name = stream ? 'a streamed request' : 'a plain request';
    rows.push(row(`added to ${name}, one at a time, p50, ms`, added('latency', 'p50'), { digits: 2, goal }));
    rows.push(row('– p99, ms', added('latency', 'p99'), { digits: 2 }));
    if (stream) rows.push(row('– until the first chunk, p50, ms', added('firstByte', 'p50'), { digits: 2 }));
  }
  return { rows, notes: [] };
}

/** Resident memory while 64 streams run, and CPU seconds until ready. */
export async function memoryRows(bench, lanes) {
  const ours = Object.entries(lanes).filter(([, { isOurs }]) => isOurs);
  const resident = {};
  await bench.upstream.set({ chunks: 100, burst: 1, gap: 20 });
  for (const [id, lane] of ours) {
    const running = bench.generator.run({
      ...requestOf(lane, { stream: true }),
      connections: 64,
      each: 1,
      spread: 300,
    });
    await Promise.race([pause(1_700), running]);
    resident[id] = lane.resident() / 1e6;
    await running;
  }
  const goal = (value) => Object.fromEntries(ours.map(([id]) => [id, value]));
  const seconds = Object.fromEntries(ours.map(([id, lane]) => [id, lane.startSeconds]));
  return {
    rows: [
      row('RSS at 64 streams, MB (all services; the router alone)', resident, { digits: 0, goal: goal(200) }),
      row('CPU until ready, s (all services; the router alone)', seconds, { goal: goal(3) }),
    ],
    notes: [],
  };
}
