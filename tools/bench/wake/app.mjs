// Says when its process began and how long it took until it listened: the app's own part of a cold start.
import { randomUUID } from 'node:crypto';
import http from 'node:http';

const start = randomUUID();
const marks = {};
http
  .createServer((request, response) => {
    for (const [name, value] of Object.entries(marks)) response.setHeader(name, value);
    response.end('ok');
  })
  .listen(process.env.PORT, '0.0.0.0', () => {
    const now = performance.now();
    Object.assign(marks, { 'x-start': start, 'x-began': performance.timeOrigin, 'x-boot': now });
  });
