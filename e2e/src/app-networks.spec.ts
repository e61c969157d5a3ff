import { randomUUID } from 'node:crypto';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { packFolder } from '@nebo/archive';
import { probeDrivers } from '@nebo/region-agent';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { nothingLost } from '../harness/audit.js';
import { forms, type Installation } from '../harness/forms.js';
import { run, until } from '../harness/nebo.js';

/** Changes of network under load; more with NEBO_PROOF (`npm run proof -- app-networks`). */
const proof = Number(process.env['NEBO_PROOF'] || 0);
const changes = proof || 3;
const perSecond = proof ? 200 : 50;

/** Says where it is; `/to/<address>` brings what the app at that private address says. */
const server = `
const http = require('node:http');
const own = process.env.NEBO_PRIVATE_ADDRESS || 'nowhere';
http.createServer((req, res) => {
  const to = /^\\/to\\/([\\d.]+)$/.exec(req.url);
  if (!to) return setTimeout(() => res.end(own), 20);
  http.get({ host: to[1], port: 8080, timeout: 2000 }, (answer) => answer.pipe(res))
    .on('timeout', function () { this.destroy(new Error('silent')); })
    .on('error', (error) => res.end(error.code || error.message));
}).listen(process.env.PORT, process.env.HOST);
`;

const { networks, replicas } = await probeDrivers({});
const real = networks.driver === 'local' && replicas.driver === 'local';
const why = real ? '' : ` (SKIPPED: ${networks.driver === 'local' ? replicas.why : networks.why})`;

for (const { form, missing, start } of forms) {
  const isSkipped = missing || !real;
  (isSkipped ? describe.skip : describe)(`apps in private networks, ${form}${why}`, () => {
    let nebo: Installation;
    let api: Api;
    let project: string;
    let region: string;
    let folder: string;

    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'nebo-app-networks-'));
      nebo = await start({
        NEBO_UPLINK: 'isolated',
        NEBO_RATE_LIMIT: '0',
        NEBO_IDLE_TIMEOUT: '5',
        NEBO_DRAIN_MS: '1000',
      });
      api = new Api(nebo.baseUrl, nebo.key, new ContractCheck(readContract('v1')));
      project = (await api.get('/projects')).body.data[0].id;
      region = (await nebo.admin('region', 'list')).data[0].id;
      await writeFile(join(folder, 'server.js'), server);
      await writeFile(join(folder, 'package.json'), JSON.stringify({ scripts: { start: 'node server.js' } }));
    }, 120_000);
    afterAll(async () => {
      await nebo?.stop();
      await rm(folder, { recursive: true, force: true });
    }, 60_000);

    const vpc = async (subnet: string): Promise<string> => {
      const made = await api.post('/vpcs', { name: subnet, subnet, cluster_id: region });
      expect(made.status).toBe(201);
      await until(async () => (await api.get(`/vpcs/${made.body.id}`)).body.status === 'active');
      return made.body.id;
    };
    const app = async (more: object): Promise<{ id: string; host: string; build: string }> => {
      const name = `net-${randomUUID().slice(0, 8)}`;
      const made = await api.post(`/projects/${project}/apps`, {
        ...{ name, source_type: 'upload', app_type: 'backend', readiness_path: '/' },
        ...more,
      });
      expect(made.status).toBe(201);
      const raw = await buffer((await packFolder(folder)).stream);
      const headers = { 'content-type': 'application/gzip' };
      const build = (await api.call('POST', `/apps/${made.body.id}/deployments`, { raw, headers })).body.id;
      await until(async () => {
        const { body } = await api.get(`/apps/${made.body.id}/builds/${build}?wait=live&timeout=20`);
        if (body.status === 'error' || body.boot_error) throw new Error(body.error ?? body.boot_error);
        return body.deploy_state === 'live';
      }, 60_000);
      return { id: made.body.id, host: `${name}.apps.localhost`, build };
    };
    const ask = (host: string, path = '/'): Promise<{ status: number; text: string }> =>
      new Promise((resolve, reject) => {
        const { port } = new URL(nebo.edgeUrl);
        request({ host: '127.0.0.1', port, path, headers: { host } }, (answer) => {
          buffer(answer).then(
            (bytes) => resolve({ status: answer.statusCode!, text: bytes.toString() }),
            reject,
          );
        })
          .on('error', reject)
          .end();
      });
    const setNet = async (id: string, vpc_id: string | null) =>
      expect(await api.patch(`/apps/${id}`, { vpc_id })).toMatchObject({ status: 200, body: { vpc_id } });
    /** Until every answer of some is of a network, by its beginning. */
    const settled = (host: string, beginning: string) =>
      until(async () => {
        const answers = await Promise.all(Array.from({ length: 6 }, () => ask(host)));
        return answers.every(({ status, text }) => status === 200 && text.startsWith(beginning));
      }, 60_000);

    it('apps reach each other at their private addresses, a job too, a stranger of another network does not', async () => {
      const [shared, other] = [await vpc('10.30.0.0/24'), await vpc('10.31.0.0/24')];
      const [first, second, third] = await Promise.all([
        app({ vpc_id: shared, replica_count: 1 }),
        app({ vpc_id: shared, replica_count: 0 }),
        app({ vpc_id: other, replica_count: 1 }),
      ]);
      const address = (await ask(first.host)).text;
      expect(address).toMatch(/^10\.30\.0\.\d+$/);
      expect((await ask(second.host, `/to/${address}`)).text).toBe(address);
      expect((await ask(third.host, `/to/${address}`)).text).not.toBe(address);
      // From the network's own router, as from a machine there.
      const space = (await readdir('/run/netns')).find((name) => name.endsWith(shared));
      const program = `require('node:http').get('http://${address}:8080/', (r) => r.pipe(process.stdout))`;
      const probe = await run('ip', ['netns', 'exec', space!, process.execPath, '-e', program]);
      expect(probe.stdout).toBe(address);

      const command = `node -e "fetch('http://${address}:8080').then((a) => a.text()).then(console.log)"`;
      const job = (await api.post(`/apps/${second.id}/jobs`, { name: 'call', command })).body;
      const begun = (await api.post(`/apps/${second.id}/jobs/${job.id}/run`)).body.id;
      await until(
        async () => (await api.get(`/apps/${second.id}/job-runs/${begun}`)).body.status === 'success',
      );
      expect((await api.get(`/apps/${second.id}/job-runs/${begun}`)).body.log_tail).toContain(address);

      expect(await api.delete(`/vpcs/${shared}`)).toMatchObject({
        status: 409,
        body: { error: { code: 'vpc_in_use' } },
      });
      await Promise.all([first, second, third].map(({ id }) => api.delete(`/apps/${id}`)));
      await until(async () => (await api.delete(`/vpcs/${shared}`)).status === 204);
      await until(async () => (await api.delete(`/vpcs/${other}`)).status === 204);
    }, 180_000);

    it(
      `${changes} changes of network at ${perSecond} requests a second: none fails, with two replicas and on demand`,
      async () => {
        const nets = [await vpc('10.40.0.0/24'), await vpc('10.41.0.0/28'), null];
        const beginnings = ['10.40.', '10.41.', 'nowhere'];
        const [pair, sleepy] = await Promise.all([
          app({ vpc_id: nets[0], replica_count: 2 }),
          app({ vpc_id: nets[0], replica_count: 0 }),
        ]);
        const wrong: string[] = [];
        const pending = new Set<Promise<void>>();
        let asked = 0;
        const timer = setInterval(() => {
          // Most go to the two; some to the other.
          const { host } = (asked += 1) % 5 === 0 ? sleepy : pair;
          const answer = ask(host).then(
            ({ status, text }) => void (status === 200 || wrong.push(`${host} ${status} ${text}`)),
            (error: Error) => void wrong.push(`${host} ${error.message}`),
          );
          pending.add(answer);
          void answer.finally(() => pending.delete(answer));
        }, 1_000 / perSecond);
        try {
          for (let change = 1; change <= changes; change += 1) {
            const place = change % nets.length;
            await Promise.all([pair, sleepy].map(({ id }) => setNet(id, nets[place]!)));
            await Promise.all([pair, sleepy].map(({ host }) => settled(host, beginnings[place]!)));
          }
        } finally {
          clearInterval(timer);
          await Promise.all(pending);
        }
        expect(wrong).toEqual([]);
        expect(asked).toBeGreaterThan(changes);
        for (const { id, build } of [pair, sleepy]) {
          expect((await api.get(`/apps/${id}/builds/${build}`)).body).toMatchObject({
            deploy_state: 'live',
            boot_error: null,
          });
          expect((await api.delete(`/apps/${id}`)).status).toBe(204);
        }
        await nothingLost(nebo);
        for (const id of [nets[0], nets[1]]) expect((await api.delete(`/vpcs/${id}`)).status).toBe(204);
      },
      180_000 + changes * 10_000,
    );
  });
}
