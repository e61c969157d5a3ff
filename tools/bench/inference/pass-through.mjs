/**
 * The bare pass-through that the router is compared with: node:http in front, undici behind, bodies streamed both ways,
 * nothing parsed, nothing kept. Arguments: the origin behind; `pipe`, undici's usual way (`request` and a pipe), which is the
 * baseline, or `dispatch`, the least that undici can do, shown beside it.
 */
import { createServer } from 'node:http';
import { Pool } from 'undici';

const [origin, form] = process.argv.slice(2);
const pool = new Pool(origin, { connections: 1_024, headersTimeout: 0, bodyTimeout: 0 });
const hopByHop = new Set(['connection', 'keep-alive', 'transfer-encoding', 'host']);

function passed(headers) {
  const kept = {};
  for (const name in headers) if (!hopByHop.has(name)) kept[name] = headers[name];
  return kept;
}

const optionsOf = (request) => ({
  method: request.method,
  path: request.url,
  headers: passed(request.headers),
  body: request,
});

function pipe(request, response) {
  const gone = new AbortController();
  response.once('close', () => response.writableFinished || gone.abort());
  pool.request({ ...optionsOf(request), signal: gone.signal }).then(
    (answer) => {
      response.writeHead(answer.statusCode, passed(answer.headers));
      answer.body.on('error', () => response.destroy());
      answer.body.pipe(response);
    },
    () => response.destroy(),
  );
}

function dispatch(request, response) {
  let running;
  response.once('close', () => response.writableFinished || running?.abort(new Error('the client left')));
  pool.dispatch(optionsOf(request), {
    onRequestStart: (controller) => (running = controller),
    onResponseStart: (_, status, headers) => response.writeHead(status, passed(headers)),
    onResponseData(controller, chunk) {
      if (response.write(chunk)) return;
      controller.pause();
      response.once('drain', () => controller.resume());
    },
    onResponseEnd: () => response.end(),
    onResponseError: () => response.destroy(),
  });
}

const server = createServer(
  { requestTimeout: 0, keepAliveTimeout: 75_000 },
  form === 'dispatch' ? dispatch : pipe,
);
process.on('disconnect', () => process.exit(0));
server.listen(0, '127.0.0.1', () => process.send({ port: server.address().port }));
