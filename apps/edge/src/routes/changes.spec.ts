import http, { type RequestListener } from 'node:http';
import { type ClientHttp2Session } from 'node:http2';
import { buffer } from 'node:stream/consumers';
import {
  artifact,
  ask,
  backend,
  Cleanup,
  ControlPlane,
  replicas,
  startEdge,
  staticTarget,
  until,
} from '../../test/kit.js';
import { ask2, h2 } from '../../test/h2.js';

/** Changes of routes under load; 1,000 is the bar (`npm run proof -- edge-changes`). */
const size = Number(process.env['NEBO_PROOF'] || 50);
const host = 'shop.apps.localhost';

/**
 * A route goes from files to replicas to other replicas while visitors ask without a pause, over HTTP/1.1 and HTTP/2: every
 * request is answered whole, by a version that was live while it was under way.
 */
describe('routes change under load', () => {
  const cleanup = new Cleanup();
  afterAll(() => cleanup.run());

  it(
    `${size} changes drop no request, and each answer is of one version`,
    async () => {
      const plane = new ControlPlane();
      // Two apps and two sites; what each says never changes, and what is live says which.
      const listener =
        (name: string): RequestListener =>
        (req, res) => {
          req.resume().on('end', () => {
            res.writeHead(200, { 'content-type': 'text/plain' });
            res.write(`${name} `);
            setTimeout(() => res.end(name), 5);
          });
        };
      const targets = [];
      for (const name of ['app-a', 'app-b']) {
        const { port } = await backend(cleanup, listener(name));
        targets.push({ name, target: replicas(port) });
      }
      for (const name of ['site-a', 'site-b']) {
        const files = await artifact({ 'index.html': `${name} ${name}` });
        plane.keep(files);
        targets.push({ name, target: staticTarget(files) });
      }
      plane.route(host, targets[0]!.target);
      plane.route('other.apps.localhost', targets[1]!.target);
      const run = await startEdge(cleanup, plane, { tuning: { stopGraceMs: 2_000 } });
      await until(() => run.edge.status().hosts === 2);
      const agent = new http.Agent({ keepAlive: true });
      cleanup.add(() => agent.destroy());
      const session: ClientHttp2Session = await h2(cleanup, run.tlsPort);

      /** Names in the order in which they were wanted; a request may see those from its start to its end. */
      const wanted = ['app-a'];
      let confirmed = 0;
      const applied = run.edge.onApplied((_version, routes) => {
        if (routes.some((route) => route.host === host)) confirmed = wanted.length - 1;
      });
      const wrong: string[] = [];
      let served = 0;
      let running = true;
      const judge = (from: number, status: number, text: string): void => {
        const names = wanted.slice(from);
        if (status === 200 && names.some((name) => text === `${name} ${name}`)) served++;
        else wrong.push(`${status} "${text}" while ${names.join(', ')}`);
      };
      const visitor = async (once: () => Promise<{ status: number; text: string }>): Promise<void> => {
        while (running) {
          const from = confirmed;
          try {
            const { status, text } = await once();
            judge(from, status, text);
          } catch (error) {
            wrong.push(String(error));
          }
        }
      };
      const visitors = [
        ...Array.from({ length: 3 }, () => visitor(() => ask(run.port, '/', { host, agent }))),
        visitor(async () => {
          // A download that is under way when the route changes.
          const answer = await new Promise<http.IncomingMessage>((resolve, reject) =>
            http
              .get({ host: '127.0.0.1', port: run.port, headers: { host }, agent }, resolve)
              .on('error', reject),
          );
          return { status: answer.statusCode!, text: (await buffer(answer)).toString() };
        }),
        ...Array.from({ length: 3 }, () => visitor(() => ask2(session, '/'))),
      ];
      for (let change = 1; change <= size; change++) {
        const { name, target } = targets[change % targets.length]!;
        wanted.push(name);
        plane.route(host, target);
        // Others come and go beside it.
        plane.route(`new-${change % 7}.apps.localhost`, targets[change % 2]!.target);
        plane.remove(`new-${(change + 3) % 7}.apps.localhost`);
        await until(() => confirmed === wanted.length - 1, 20_000);
      }
      running = false;
      await Promise.all(visitors);
      applied();
      expect(wrong.slice(0, 10)).toEqual([]);
      expect(served).toBeGreaterThan(size);
    },
    120_000 + size * 1_000,
  );
});
