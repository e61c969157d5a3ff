/** The baseline: a bare node:http server that answers a constant; at `/long` one of the length of an app's record. */
import { createServer } from 'node:http';

const short = JSON.stringify({ hello: 'world' });
const long = JSON.stringify({ hello: 'w'.repeat(700) });
createServer((request, response) => {
  const body = request.url === '/long' ? long : short;
  response
    .writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
    .end(body);
}).listen(Number(process.argv[2]), '127.0.0.1');
