/**
 * So many requests a second, evenly, whatever becomes of them (an open loop: a slow answer does not slow the questions):
 * `node rate.mjs PORT HOST PATH PER_SECOND SECONDS`. Prints the milliseconds of each answer as JSON.
 */
import http from 'node:http';

const [port, host, path, perSecond, seconds] = process.argv.slice(2);
const gap = 1_000 / Number(perSecond);
const total = Number(perSecond) * Number(seconds);
const agent = new http.Agent({ keepAlive: true, maxSockets: 64, scheduling: 'fifo' });
const took = [];
let failed = 0;

const one = () =>
  new Promise((done) => {
    const begun = performance.now();
    const request = http.get({ host: '127.0.0.1', port: Number(port), path, agent, headers: { host } });
    request.once('error', () => ((failed += 1), done()));
    request.once('response', (answer) => {
      answer.resume();
      answer.once('end', () => {
        took.push(performance.now() - begun);
        if (answer.statusCode !== 200) failed += 1;
        done();
      });
    });
  });

// Connections and code are warm before anything is counted.
for (let index = 0; index < 60; index += 1) await one();
took.length = 0;

const running = [];
const start = performance.now();
for (let sent = 0; sent < total;) {
  while (sent < total && start + sent * gap <= performance.now()) {
    running.push(one());
    sent += 1;
  }
  await new Promise((done) => setTimeout(done, 1));
}
await Promise.all(running);
agent.destroy();
console.log(JSON.stringify({ failed, took }));
