import { compileRouting } from '@nebo/routing';
import { FakeDesk } from '../../test/desk.js';
import {
  artifact,
  type Answer,
  ask,
  backend,
  Cleanup,
  ControlPlane,
  freePort,
  replicas,
  type Running,
  startEdge,
  staticTarget,
  until,
} from '../../test/kit.js';

const good = 'https://shop.example.com';
/** Would pass where origins are compared by their beginnings, ends, letters or not at all. */
const strangers = [
  'https://evil.example',
  'https://shop.example.com.evil.example',
  'https://evilshop.example.com',
  'https://shop.example.com:8443',
  'http://shop.example.com',
  'https://SHOP.example.com',
  'https://shop.example.com/',
  'null',
  '*',
];

/** One rule of `cors`, over everything that an edge may answer with. */
describe('strict CORS', () => {
  const cleanup = new Cleanup();
  const plane = new ControlPlane();
  const desk = new FakeDesk();
  let run: Running;

  beforeAll(async () => {
    const { routing } = compileRouting(
      'nebo.json',
      JSON.stringify({
        redirects: [{ source: '/old', destination: '/ten.txt' }],
        cors: [{ source: '/(.*)', origins: [good], methods: ['GET', 'PUT'], credentials: true }],
      }),
    );
    const site = await artifact({ 'index.html': 'home', 'ten.txt': '0123456789' });
    plane.keep(site);
    const app = await backend(cleanup, (_req, res) => {
      // What an app says itself is not for it to say where its file has a rule.
      res.setHeader('Access-Control-Allow-Origin', '*');
      res.end('app');
    });
    plane.route('site.apps.localhost', staticTarget(site), { routing });
    plane.route('app.apps.localhost', replicas(app.port), { routing });
    plane.route('dead.apps.localhost', replicas(await freePort()), { routing });
    plane.route('sleeps.apps.localhost', { kind: 'replicas', replicas: [], wake: { id: 'r1' } }, { routing });
    plane.route('bare.apps.localhost', staticTarget(site));
    desk.refuse = 'crashed';
    run = await startEdge(cleanup, plane, { wake: desk, tuning: { wakePatienceMs: 200 } });
    await until(() => run.edge.status().hosts === 5 && run.edge.status().pending.length === 0);
  });
  afterAll(() => cleanup.run());

  const tag = async () => (await ask(run.port, '/ten.txt', { host: 'site.apps.localhost' })).headers.etag!;
  const answers: [name: string, status: number, ask: (origin: string) => Promise<Answer>][] = [
    ['a file', 200, (origin) => from('site', '/ten.txt', { origin })],
    ['a part of a file', 206, (origin) => from('site', '/ten.txt', { origin, range: 'bytes=0-1' })],
    [
      'a file that has not changed',
      304,
      async (origin) => from('site', '/ten.txt', { origin, 'if-none-match': await tag() }),
    ],
    ['a range outside', 416, (origin) => from('site', '/ten.txt', { origin, range: 'bytes=99-' })],
    ['no page', 404, (origin) => from('site', '/no.txt', { origin })],
    ['a redirect', 308, (origin) => from('site', '/old', { origin })],
    ['a method that files do not have', 405, (origin) => from('site', '/ten.txt', { origin }, 'PUT')],
    ['an app', 200, (origin) => from('app', '/', { origin })],
    ['an app that is down', 502, (origin) => from('dead', '/', { origin })],
    ['an app that does not wake', 503, (origin) => from('sleeps', '/', { origin })],
    [
      'a preflight',
      204,
      (origin) => from('app', '/', { origin, 'access-control-request-method': 'PUT' }, 'OPTIONS'),
    ],
  ];

  function from(app: string, path: string, headers: Record<string, string>, method = 'GET'): Promise<Answer> {
    return ask(run.port, path, { host: `${app}.apps.localhost`, headers, method });
  }

  it.each(answers)('%s (%i): the named origin and no other', async (_name, status, asked) => {
    const allowed = await asked(good);
    expect(allowed.status).toBe(status);
    expect(allowed.headers['access-control-allow-origin']).toBe(good);
    expect(allowed.headers['access-control-allow-credentials']).toBe('true');
    expect(allowed.headers.vary).toMatch(/\bOrigin\b/i);
    for (const origin of strangers) {
      const refused = await asked(origin);
      expect([origin, refused.headers['access-control-allow-origin']]).toEqual([origin, undefined]);
      expect([origin, refused.headers['access-control-allow-credentials']]).toEqual([origin, undefined]);
      // A cache must not give the answer for one origin to another.
      expect(refused.headers.vary).toMatch(/\bOrigin\b/i);
    }
  });

  it('without a rule nobody is allowed, whatever is asked', async () => {
    for (const [path, headers, method] of [
      ['/ten.txt', {}, 'GET'],
      ['/no.txt', {}, 'GET'],
      ['/ten.txt', { 'access-control-request-method': 'PUT' }, 'OPTIONS'],
    ] as const) {
      const answer = await from('bare', path, { origin: good, ...headers }, method);
      expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
    }
  });
});
