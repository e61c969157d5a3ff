/** Ports for installations that tests, benches and `npm run start:split` start. */
import { createServer } from 'node:net';

/**
 * Below the range from which the system takes ports of outgoing connections, one of which could be gone again before it is
 * used. An installation listens seconds after its ports were chosen, so two workers of a test run must not choose
 * from the same ones.
 */
const first = 12_000;
const perWorker = 3_000;
const workers = 6;

const worker = (Number(process.env.JEST_WORKER_ID) || 1) - 1;
const from = first + (worker % workers) * perWorker;

/** Given out before: nobody may listen on them yet. */
const given = new Set();

/** A TCP port of 127.0.0.1 that is free and was not given out before. @returns {Promise<number>} */
export async function freePort() {
  if (given.size === perWorker) given.clear();
  for (;;) {
    const port = from + Math.floor(Math.random() * perWorker);
    if (given.has(port)) continue;
    given.add(port);
    if (await isFree(port)) return port;
  }
}

/** @param {number} count @returns {Promise<number[]>} */
export async function freePorts(count) {
  const ports = [];
  while (ports.length < count) ports.push(await freePort());
  return ports;
}

const isFree = (port) =>
  new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
