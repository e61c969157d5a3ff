import { createServer } from 'node:http';
import { type AddressInfo } from 'node:net';
import { type EgressProxy, parseAllowList, startEgressProxy } from '@nebo/safe-net';
import { type ReplicaFacts } from '@nebo/contracts';
import { localMissing, stage, type Stage } from './agent-kit.js';
import { buildOf, replicaOf } from './sources.js';

const missing = await localMissing();

for (const driver of ['simulated', 'local'] as const) {
  const skip = driver === 'local' && missing !== null;
  (skip ? describe.skip : describe)(`the way out, ${driver} driver${skip ? ` (SKIPPED: ${missing})` : ''}`, () => {
    let on: Stage;
    let proxy: EgressProxy;
    const target = createServer((_, response) => response.end('reached the target'));
    let port = 0;
    beforeAll(async () => {
      await new Promise<void>((resolve) => target.listen(0, '127.0.0.1', resolve));
      port = (target.address() as AddressInfo).port;
      proxy = await startEgressProxy({ allow: parseAllowList(`127.0.0.1:${port}`) });
      on = await stage(driver, {}, { proxyUrl: proxy.url! });
    }, 30_000);
    afterAll(async () => {
      await on.end();
      await proxy.stop();
      target.close();
    });
    const through = (url: string) =>
      `const p = new URL(process.env.HTTP_PROXY); require('http').get({ host: p.hostname, port: p.port, path: '${url}', headers: { host: new URL('${url}').host } }, (r) => { r.on('data', (d) => OUT(r.statusCode + ' ' + d)); });`;

    it('a build reaches what the proxy allows, through the proxy only', async () => {
      const ask = (url: string) => `node -e "${through(url).replaceAll('OUT', 'console.log').replaceAll('"', '\\"')}"`;
      const commands = [ask(`http://127.0.0.1:${port}/`), ask('http://169.254.169.254/latest/meta-data')];
      on.plane.want('out', 1, await buildOf(on.plane, 'out', { 'index.html': '' }, { build_command: commands.join('\n') }));
      await on.plane.see('out', 'success');
      const log = on.plane.lines('build-out');
      expect(log).toContain('200 reached the target');
      expect(log.some((line) => line.startsWith('403 '))).toBe(true);
    });

    it('a replica too', async () => {
      const server = `require('http').createServer((q, s) => { ${through(`http://127.0.0.1:${port}/`).replace('OUT', 's.end')} }).listen(process.env.PORT, process.env.HOST)`;
      on.plane.want('web', 1, await replicaOf(on.plane, 'web', server));
      const { host, port: at } = (await on.plane.see('web', 'ready')).facts as unknown as ReplicaFacts;
      expect(await (await fetch(`http://${host}:${at}/`)).text()).toBe('200 reached the target');
    });

    const online = process.env['NEBO_TEST_NETWORK'] === '1';
    (online ? it : it.skip)(`npm install from the registry${online ? '' : ' (SKIPPED: set NEBO_TEST_NETWORK=1)'}`, async () => {
      const files = {
        'package.json': JSON.stringify({ scripts: { start: 'node server.js' }, dependencies: { ms: '2.1.3' } }),
        'server.js': `require('http').createServer((q, s) => s.end(String(require('ms')('2 days')))).listen(process.env.PORT, process.env.HOST)`,
      };
      on.plane.want('npm', 1, await buildOf(on.plane, 'npm', files));
      const built = await on.plane.see('npm', 'success', 100_000);
      const { artifact, start_command } = built.facts as { artifact: { sha256: string; bytes: number }; start_command: string };
      const { spec } = await replicaOf(on.plane, 'npm-web', '');
      on.plane.want('npm-web', 1, { kind: 'replica', spec: { ...spec, artifact, start_command } });
      const { host, port: at } = (await on.plane.see('npm-web', 'ready')).facts as unknown as ReplicaFacts;
      expect(await (await fetch(`http://${host}:${at}/`)).text()).toBe('172800000');
    }, 120_000);
  });
}
