import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { identityHeader, IdentitySigner } from '@nebo/contracts';
import { MasterKey } from '@nebo/service-kit';
import { sharedPostgres } from '@nebo/test-kit';
import {
  account,
  caller,
  type Ground,
  hangInTheMiddle,
  plenty,
  startGround,
  testConfig,
  until,
} from '../../test/harness.js';

const messages = [{ role: 'user', content: 'hi' }];
const usage = { prompt_tokens: 10, completion_tokens: 5 };
const cost = 10n * 60_000n + 5n * 240_000n;

describe('a router that is killed', () => {
  const home = mkdtempSync(join(tmpdir(), 'nebo-killed-'));
  let ground: Ground;
  let child: ChildProcess | undefined;
  afterAll(async () => {
    child?.kill('SIGKILL');
    await ground?.billing.stop();
    await ground?.upstream.stop();
    rmSync(home, { recursive: true, force: true });
    await (await sharedPostgres()).stop();
  });

  /** The service as a process of its own, from source. @returns its address */
  async function start(port: number): Promise<string> {
    const here = fileURLToPath(new URL('../../', import.meta.url));
    child = spawn(
      process.execPath,
      [
        '--conditions',
        'nebo-src',
        '--import',
        join(here, '../../tools/test/run-ts.mjs'),
        join(here, 'src/main.ts'),
      ],
      {
        cwd: here,
        stdio: ['ignore', 'ignore', 'pipe'],
        env: {
          PATH: process.env['PATH'],
          NEBO_HOME: home,
          DATABASE_URL: ground.databaseUrl,
          NEBO_IDENTITY_BILLING_URL: ground.billing.url,
          NEBO_INFERENCE_CONFIG: join(home, 'inference.yaml'),
          TEST_VENDOR_KEY: 'x',
          NEBO_INFERENCE_ROUTER_PORT: String(port),
        },
      },
    );
    let log = '';
    child.stderr!.on('data', (data: Buffer) => (log += data.toString()));
    const ready = /"port":(\d+)/;
    await until(
      () => {
        if (child!.exitCode !== null) throw new Error(log);
        return ready.test(log);
      },
      `the child is ready: ${log}`,
      25_000,
    );
    return `http://127.0.0.1:${ready.exec(log)![1]}`;
  }
  const kill = async () => {
    child!.kill('SIGKILL');
    await once(child!, 'exit');
  };
  const ask = (url: string, body: Record<string, unknown> = {}) => {
    const signer = new IdentitySigner(MasterKey.fromFile(join(home, 'master.key')).derive('identity'));
    return fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', [identityHeader]: signer.sign(caller) },
      body: JSON.stringify({ model: 'glm-5.3', messages, ...body }),
    });
  };

  it('loses no settlement, charges nothing twice and leaves no hold behind', async () => {
    ground = await startGround();
    writeFileSync(join(home, 'inference.yaml'), testConfig.replaceAll('{url}', ground.upstream.url));
    ground.upstream.script(() => ({ usage }));
    const url = await start(0);
    expect((await ask(url)).status).toBe(200);
    // Killed between the answer and the capture, which never got through; and in the middle of another answer.
    ground.billing.away = /capture|void/;
    expect((await ask(url)).status).toBe(200);
    ground.upstream.next({ handle: hangInTheMiddle });
    const running = await ask(url, { stream: true });
    const rest = running.text().catch(() => 'cut');
    expect(ground.billing.inState('held')).toHaveLength(2);
    await kill();
    expect(await rest).not.toContain('[DONE]');
    ground.billing.away = null;
    await start(0);
    await until(
      () => ground.billing.inState('captured').length === 2,
      'the settlement is delivered by the next process',
      20_000,
    );
    // The cut answer's hold comes back when the lease of the dead process ends.
    await until(() => ground.billing.inState('held').length === 0, 'nothing is held', 45_000);
    expect(ground.billing.inState('void')).toHaveLength(1);
    expect(ground.billing.available(account)).toBe(plenty - 2n * cost);
  }, 120_000);
});
