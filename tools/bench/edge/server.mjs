/**
 * The edge alone: `node server.mjs FOLDER BACKEND_PORT`. Serves `app.apps.localhost` from the backend and `files.apps.localhost`
 * from FOLDER/site.tar.gz; prints its ports and the file of its authority as one line of JSON once both are live.
 */
import { createReadStream, readFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { AccessLog, createEdge } from '../../../apps/edge/dist/index.js';

const [folder, backend, log] = process.argv.slice(2);
const archive = join(folder, 'site.tar.gz');
const bytes = readFileSync(archive);
const sha256 = createHash('sha256').update(bytes).digest('hex');
const route = (host, target) => ({ host, app_id: host, account_id: 'bench', build_id: 'bench', target });
const routes = [
  route('app.apps.localhost', {
    kind: 'replicas',
    replicas: [{ id: 'one', host: '127.0.0.1', port: Number(backend) }],
  }),
  route('files.apps.localhost', {
    kind: 'static',
    artifact_sha256: sha256,
    artifact_bytes: bytes.length,
  }),
];
const answer = { version: '1', full: true, routes, removed: [] };
let waiting;
const edge = createEdge({
  home: join(folder, 'edge'),
  host: '127.0.0.1',
  port: 0,
  tlsPort: 0,
  // As `main.ts` does, but the line goes nowhere: what is compared is the work of a request, not the disk.
  ...(log ? { onAccess: await accessLog() } : {}),
  source: {
    fetchRoutes: (since, signal) =>
      since === null
        ? Promise.resolve(answer)
        : new Promise((resolve) => {
            waiting = () => resolve({ ...answer, full: false, routes: [] });
            signal.addEventListener('abort', waiting, { once: true });
          }),
    fetchArtifact: () => Promise.resolve(createReadStream(archive)),
  },
});
const ports = await edge.start();
while (!edge.status().ready || edge.status().pending.length > 0) {
  await new Promise((done) => setTimeout(done, 20));
}
console.log(JSON.stringify(ports));

async function accessLog() {
  const { pino } = await import('pino');
  return new AccessLog(pino.destination({ dest: '/dev/null', sync: false }), 'edge').note;
}

process.on('SIGTERM', () => {
  waiting?.();
  edge.stop().finally(() => process.exit(0));
});
