import { createHash, randomBytes } from 'node:crypto';
import { type Socket } from 'node:net';
import { ask, backend, Cleanup, freePort } from '../../test/kit.js';
import { stage } from '../../test/stage.js';

const cleanup = new Cleanup();
afterEach(() => cleanup.run());

describe('an app on demand whose process ends', () => {
  it('takes no connection any more: asked for again, and the request, body and all, goes to its next life', async () => {
    const on = await stage(cleanup);
    const body = randomBytes(300_000);
    for (const ask_ of [
      () => ask(on.port, '/', { method: 'POST', body }),
      () => ask(on.port, '/', { method: 'GET' }),
    ]) {
      on.desk.ports.set('r1', await freePort());
      on.desk.awake.add('r1');
      on.desk.lose();
      on.desk.awake.add('r1');
      const real = on.app.port;
      const hold = on.desk.hold.bind(on.desk);
      let holds = 0;
      on.desk.hold = (...words) => {
        // The agent sees the end of the process a little later than the edge does.
        if (++holds === 3) {
          on.desk.ports.set('r1', real);
          on.desk.awake.delete('r1');
        }
        return hold(...words);
      };
      const answer = await ask_();
      expect(answer.status).toBe(200);
      expect(holds).toBe(3);
      on.desk.hold = hold;
    }
    on.desk.lose();
    on.desk.ports.set('r1', await freePort());
    expect((await ask(on.port, '/')).status).toBe(502);
  }, 30_000);

  it('a process that ends takes connections for a moment longer: what comes then waits, and goes to its next life', async () => {
    const on = await stage(cleanup);
    const { port, server } = await backend(cleanup, (req, res) => {
      if (req.url === '/') return void res.end('first life');
      // What it was asked over closes first; what it listens to a moment later, and all that was taken there is reset.
      req.socket.resetAndDestroy();
      server.removeAllListeners('connection').on('connection', (socket: Socket) => {
        setTimeout(() => socket.resetAndDestroy(), 20);
      });
      setTimeout(() => {
        server.close();
        on.desk.ports.set('r1', on.app.port);
        on.desk.awake.delete('r1');
      }, 20);
    });
    on.desk.ports.set('r1', port);
    expect((await ask(on.port, '/')).text).toBe('first life');
    expect((await ask(on.port, '/crash', { method: 'POST', body: Buffer.from('x') })).status).toBe(502);
    const body = randomBytes(300_000);
    const after = await Promise.all([1, 2, 3].map(() => ask(on.port, '/', { method: 'POST', body })));
    const hash = createHash('sha256').update(body).digest('hex');
    expect(after.map(({ status, text }) => `${status} ${text}`)).toEqual(Array(3).fill(`200 POST ${hash}`));
  });

  it('one that only broke a connection is asked again a moment later', async () => {
    const on = await stage(cleanup, {
      listener: (req, res) => (req.url === '/' ? void res.end('here') : void req.socket.destroy()),
    });
    expect((await ask(on.port, '/breaks', { method: 'POST' })).status).toBe(502);
    expect(await ask(on.port, '/')).toMatchObject({ status: 200, text: 'here' });
    expect(on.desk).toMatchObject({ asked: 1, starts: 1 });
  });
});
