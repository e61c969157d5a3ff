import { createServer } from 'node:http';
import { type AddressInfo } from 'node:net';
import { type EgressProxy, parseAllowList, startEgressProxy } from '@nebo/safe-net';
import { type ReplicaFacts } from '@nebo/contracts';
import { egressOf } from '../src/index.js';
import { localMissing, stage, type Stage } from './agent-kit.js';
import { buildOf, replicaOf } from './sources.js';

const missing = await localMissing();
/** `host:port` of the package registry that this machine may use although its address is private; unset: nothing is fetched. */
const network = process.env['NEBO_TEST_NETWORK'] ? [process.env['NEBO_TEST_NETWORK']] : [];

for (const driver of ['simulated', 'local'] as const) {
  const skip = driver === 'local' && missing !== null;
  (skip ? describe.skip : describe)(
    `the way out, ${driver} driver${skip ? ` (SKIPPED: ${missing})` : ''}`,
    () => {
      let on: Stage;
      let proxy: EgressProxy;
      const target = createServer((_, response) => response.end('reached the target'));
      let port = 0;
      beforeAll(async () => {
        await new Promise<void>((resolve) => target.listen(0, '127.0.0.1', resolve));
        port = (target.address() as AddressInfo).port;
        proxy = await startEgressProxy({
          allow: parseAllowList([`127.0.0.1:${port}`, ...network].join(',')),
        });
        on = await stage(driver, {}, egressOf(proxy));
      }, 30_000);
      afterAll(async () => {
        await on.end();
        await proxy.stop();
        target.close();
      });
      /** Asks the proxy by hand, since the variables keep 127.0.0.1 away from it. */
      const through = (url: string) =>
        `const p = new URL(process.env.HTTP_PROXY); const s = require('net').connect(p.port, p.hostname); let t = ''; s.setEncoding('utf8').on('data', (d) => t += d).on('end', () => OUT(t.slice(9, 12) + ' ' + t.split('\\r\\n\\r\\n')[1])); s.write('GET ${url} HTTP/1.1\\r\\nHost: ${new URL(url).host}\\r\\nConnection: close\\r\\n\\r\\n');`;

      it('a build reaches what the proxy allows, through the proxy only', async () => {
        const ask = (url: string) => through(url).replace('OUT', 'console.log');
        const files = {
          'index.html': '',
          'a.cjs': ask(`http://127.0.0.1:${port}/`),
          'b.cjs': ask('http://169.254.169.254/latest/meta-data'),
        };
        on.plane.want(
          'out',
          1,
          await buildOf(on.plane, 'out', files, { build_command: 'node a.cjs; node b.cjs' }),
        );
        await on.plane.see('out', 'success');
        const log = on.plane.lines('build-out');
        expect(log).toContain('200 reached the target');
        expect(log.some((line) => line.startsWith('403 '))).toBe(true);
      });

      it('a replica too', async () => {
        const server = `require('http').createServer((q, answer) => { ${through(`http://127.0.0.1:${port}/`).replace('OUT', 'answer.end')} }).listen(process.env.PORT, process.env.HOST)`;
        on.plane.want('web', 1, await replicaOf(on.plane, 'web', server));
        const { host, port: at } = (await on.plane.see('web', 'ready')).facts as unknown as ReplicaFacts;
        expect(await (await fetch(`http://${host}:${at}/`)).text()).toBe('200 reached the target');
      });

      const online = network.length > 0;
      (online ? it : it.skip)(
        `npm install from the registry${online ? '' : ' (SKIPPED: NEBO_TEST_NETWORK=host:port names a registry)'}`,
        async () => {
          const files = {
            'package.json': JSON.stringify({
              scripts: { start: 'node server.js' },
              dependencies: { ms: '2.1.3' },
            }),
            'server.js': `require('http').createServer((q, s) => s.end(String(require('ms')('2 days')))).listen(process.env.PORT, process.env.HOST)`,
          };
          on.plane.want('npm', 1, await buildOf(on.plane, 'npm', files));
          const built = await on.plane.see('npm', 'success', 40_000);
          const { artifact, start_command } = built.facts as {
            artifact: { sha256: string; bytes: number };
            start_command: string;
          };
          const { spec } = await replicaOf(on.plane, 'npm-web', '');
          on.plane.want('npm-web', 1, { kind: 'replica', spec: { ...spec, artifact, start_command } });
          const { host, port: at } = (await on.plane.see('npm-web', 'ready'))
            .facts as unknown as ReplicaFacts;
          expect(await (await fetch(`http://${host}:${at}/`)).text()).toBe('172800000');
        },
        120_000,
      );
    },
  );
}
