/** The baseline: a bare node:http server that answers a constant. */
import { createServer } from 'node:http';

const body = JSON.stringify({ hello: 'world' });
createServer((_request, response) => {
  response
    .writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
    .end(body);
}).listen(Number(process.argv[2]), '127.0.0.1');
