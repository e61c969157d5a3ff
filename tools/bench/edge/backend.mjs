/** An app that answers every request with 1 KiB of text, as cheaply as node:http can: `node backend.mjs PORT`. */
import http from 'node:http';

const body = Buffer.alloc(1024, 'x');
const server = http.createServer({ keepAliveTimeout: 600_000 }, (req, res) => {
  req.resume();
  res.writeHead(200, { 'content-type': 'text/plain', 'content-length': body.length });
  res.end(body);
});
server.listen(Number(process.argv[2]), '127.0.0.1');
