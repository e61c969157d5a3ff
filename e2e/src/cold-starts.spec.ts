import { Api, ContractCheck, readContract } from '../harness/api.js';
import { forms, type Installation } from '../harness/forms.js';
import { until } from '../harness/nebo.js';
import { deploySleepy, type Seen, SleepyClient } from '../harness/sleepy.js';

/** Cold starts in one process; more with NEBO_PROOF: 1,000 is the bar of reliability.md section 4 (`npm run proof -- cold-starts`). */
const size = Number(process.env['NEBO_PROOF'] || 40);
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Apps on demand: asleep until somebody comes, and nobody is turned away. */
for (const { form, missing, start } of forms) {
  (missing ? describe.skip : describe)(`apps that sleep, ${form}`, () => {
    let nebo: Installation;
    let api: Api;
    let project: string;
    /** For what needs no app of its own. */
    let shared: { id: string; host: string; build: string };

    beforeAll(async () => {
      nebo = await start({ NEBO_IDLE_TIMEOUT: '1', NEBO_RATE_LIMIT: '0' });
      api = new Api(nebo.baseUrl, nebo.key, new ContractCheck(readContract('v1')));
      project = (await api.get('/projects')).body.data[0].id;
      shared = await deploySleepy(api, project);
    }, 120_000);
    afterAll(() => nebo?.stop(), 60_000);

    /** Bursts at one app, each after it has gone to sleep. @returns the requests that were not served well */
    const bursts = async (count: number, sizeOf: (burst: number) => number): Promise<string[]> => {
      const { host } = await deploySleepy(api, project);
      const client = new SleepyClient(nebo.edgeUrl, host);
      const wrong: string[] = [];
      const starts = new Set<string>();
      for (let done = 0, tries = 0; done < count; tries++) {
        if (tries > 3 * count + 10) throw new Error(`${host} does not go to sleep`);
        await pause(1_400);
        const kinds = Array.from({ length: sizeOf(done) }, (_, i) => done + i);
        const seen = await Promise.all(
          kinds.map((kind) =>
            client.ask(kind).catch((error: Error): Seen => ({
              status: 0,
              start: undefined,
              good: false,
              text: error.message,
            })),
          ),
        );
        const bad = seen.filter(({ status, good }) => status !== 200 || !good);
        wrong.push(...bad.map(({ status, text }) => `burst ${done}: ${status} ${text.slice(0, 200)}`));
        const [first, ...others] = new Set(seen.map(({ start }) => start));
        if (others.length > 0) wrong.push(`burst ${done}: ${others.length + 1} starts`);
        // Not asleep yet on a busy machine: that was no cold start.
        if (first !== undefined && starts.has(first)) continue;
        starts.add(String(first));
        done++;
      }
      return wrong;
    };

    it(
      'every request of every burst is served, bodies, streams and WebSockets too, by one start',
      async () => {
        const total = form === 'in one process' ? size : Math.min(size, 8);
        const apps = Math.max(2, Math.min(10, Math.ceil(total / 5)));
        const sizes = (burst: number) => (burst % 20 === 19 ? 50 : 1 + ((burst * 7) % 12));
        const each = Array.from({ length: apps }, (_, i) => Math.floor((total + i) / apps));
        const wrong = (await Promise.all(each.map((count) => bursts(count, sizes)))).flat();
        expect(wrong).toEqual([]);
      },
      120_000 + size * 5_000,
    );

    it('sleeps truthfully: live and active, nothing charged, its log says so; open streams keep it awake', async () => {
      const before = (await api.get('/account/balance')).body.balance;
      const { id, host, build } = shared;
      const client = new SleepyClient(nebo.edgeUrl, host);
      const { start: first } = await client.send('GET', '/');
      const stream = await client.open('GET', '/stream');
      expect(stream.headers['x-start']).toBe(first);
      await pause(2_200);
      expect((await client.send('GET', '/')).start).toBe(first);
      stream.destroy();
      const { answer, socket } = await client.connect();
      expect(answer.statusCode).toBe(101);
      await pause(2_200);
      expect((await client.send('GET', '/')).start).toBe(first);
      socket!.destroy();

      await until(async () => {
        await pause(1_700);
        return (await client.send('GET', '/')).start !== first;
      }, 60_000);
      expect((await api.get(`/apps/${id}`)).body).toMatchObject({
        status: 'active',
        deploy_state: 'live',
        replica_count: 0,
      });
      expect((await api.get(`/apps/${id}/builds/${build}`)).body).toMatchObject({ deploy_state: 'live' });
      expect((await api.get('/account/balance')).body.balance).toBe(before);
    }, 120_000);

    it('a crash is started over by the next request', async () => {
      const client = new SleepyClient(nebo.edgeUrl, shared.host);
      const { start: first } = await client.send('GET', '/');
      expect((await client.send('POST', '/crash', Buffer.from('x'))).status).toBe(502);
      const next = await client.send('POST', '/', Buffer.alloc(100_000, 'x'));
      expect(next).toMatchObject({ status: 200, good: true });
      expect(next.start).not.toBe(first);
    }, 120_000);

    it('from on demand to permanent and back, and a new version while it sleeps: no request is lost', async () => {
      const { id, host } = shared;
      const client = new SleepyClient(nebo.edgeUrl, host);
      let running = true;
      const seen: Seen[] = [];
      const load = (async () => {
        for (let kind = 0; running; kind++) {
          seen.push(
            await client.ask(kind).catch((error: Error): Seen => ({
              status: 0,
              start: undefined,
              good: false,
              text: error.message,
            })),
          );
          // Long enough for a nap now and then.
          await pause(kind % 10 === 9 ? 1_600 : 50);
        }
      })();
      const starts = () => new Set(seen.map(({ start }) => start)).size;
      await until(() => starts() > 0);
      for (const change of [{ replica_count: 1 }, { replica_count: 0 }, { replica_memory_mb: 768 }]) {
        const before = starts();
        await api.call('PATCH', `/apps/${id}`, { body: change });
        // Another nap may be another start as well: a little longer than the change takes, so that it is not only that.
        await until(() => starts() > before, 60_000);
        await pause(2_500);
      }
      running = false;
      await load;
      expect(seen.filter(({ status, good }) => status !== 200 || !good)).toEqual([]);
      expect(new Set(seen.map(({ start }) => start)).size).toBeGreaterThanOrEqual(4);
    }, 180_000);
  });
}
