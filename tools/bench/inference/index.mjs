import { loadavg } from 'node:os';
import { abortRows } from './measure-aborts.mjs';
import { promptRows } from './measure-prompts.mjs';
import { addedTimeRows, memoryRows, requestRows } from './measure-requests.mjs';
import { chunkRows, streamCountRows } from './measure-streams.mjs';
import { cores, startLanes } from './lanes.mjs';
import { canPin, Generator, pin, Upstream } from './parts.mjs';
import { formatsOf, requestOf } from './requests.mjs';
import { table } from './table.mjs';

/** Size of a run that nothing is said about; 1 is the quick form, under 90 s. */
const usualSize = 4;

/**
 * The router against a bare pass-through, the upstream itself and a peer, interleaved.
 * @param {{ size?: number, only?: string }} options `size`: 1 is quick, 4 is whole; each step takes that much longer.
 *   `only`: measures whose name holds the word (requests, memory, added time, chunks, aborts, long prompts, number of streams)
 * @returns a table with goals and verdicts
 */
export async function benchInference({ size = usualSize, only = '' } = {}) {
  const [before] = loadavg();
  // Children follow: everything but what is measured shares a core.
  pin(process.pid, cores.around);
  const upstream = await Upstream.start();
  const generator = await Generator.start();
  const second = await Generator.start();
  const bench = {
    upstream,
    generator,
    second,
    ...sizes(size),
    peerStreams: false,
  };
  let started;
  try {
    started = await startLanes(upstream.origin);
    const { lanes } = started;
    const notes = started.skipped.map((what) => `Left out: ${what}.`);
    if (lanes.peer) {
      bench.peerStreams = await answersStreams(bench, lanes.peer);
      if (!bench.peerStreams)
        notes.push(
          `${lanes.peer.name} answers every stream with 500 on Node ${process.version}: plain requests only.`,
        );
    }
    const formats = await formatsOf(lanes.one);
    if (formats.lacks.length > 0) notes.push(`Left out: ${formats.lacks.join(', ')}.`);
    const rows = [];
    const measures = {
      requests: () => requestRows(bench, lanes),
      memory: () => memoryRows(bench, lanes),
      'added time': () => addedTimeRows(bench, lanes),
      chunks: () => chunkRows(bench, lanes, formats.has),
      aborts: () => abortRows(bench, lanes, formats.has),
      'long prompts': () => promptRows(bench, lanes),
      'number of streams': () => streamCountRows(bench, lanes),
    };
    for (const [name, measure] of Object.entries(measures)) {
      if (!name.includes(only)) continue;
      const began = performance.now();
      try {
        const found = await measure();
        rows.push(...found.rows);
        notes.push(...found.notes.map((note) => `${note}.`));
      } catch (error) {
        notes.push(`Not measured: ${name}: ${error.message}.`);
      }
      console.error(`  ${name}: ${((performance.now() - began) / 1_000).toFixed(0)} s`);
    }
    return [introduction(before, size, lanes), ...notes.map((note) => `- ${note}`), '', table(rows)].join(
      '\n',
    );
  } finally {
    await started?.end();
    for (const part of [upstream, generator, second]) part.end();
  }
}

/** Lengths of the steps; the quick form leaves out lanes and turns that say little more. */
const sizes = (size) => ({
  isQuick: size === 1,
  /** Rounds of requests at 16 connections, and of everything else. */
  rounds: 5,
  otherRounds: size > 1 ? 5 : 3,
  ms: 200 * size,
  warmMs: 400 * size,
  chunks: Math.min(500, 125 * size),
  chunkGap: size > 1 ? 5 : 3,
  streamSeconds: size > 1 ? 4 : 2,
  streamSteps: size > 1 ? [25, 50, 100, 150, 200, 250, 300, 400] : [100],
  harmMs: 500 * size,
  harmRounds: size > 1 ? 3 : 1,
});

const introduction = (before, size, lanes) => {
  const rest = Object.entries(lanes)
    .filter(([, { idle }]) => idle > 0.001)
    .map(([, { name, idle }]) => `${name} ${(idle * 1_000).toFixed(0)} ms`);
  return [
    `Size ${size}; load of the machine before and after: ${before.toFixed(1)}, ${loadavg()[0].toFixed(1)}; ` +
      `${canPin ? 'generator, upstream and PostgreSQL on one core, what is measured on the other' : 'nothing is pinned'}. ` +
      'Medians of rounds in which all lanes follow each other. CPU at rest is taken off' +
      `${rest.length > 0 ? ` (a second: ${rest.join(', ')})` : ''}; PostgreSQL's is told in brackets.`,
    '',
  ].join('\n');
};

async function answersStreams({ generator }, lane) {
  try {
    await generator.run({ ...requestOf(lane, { stream: true }), connections: 1, each: 1 });
    return true;
  } catch {
    return false;
  }
}
