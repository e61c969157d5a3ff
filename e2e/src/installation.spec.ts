import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { Nebo, root, run, until } from '../harness/nebo.js';

/** Processes whose command line names the data folder: nothing of an installation may be left behind. */
function processesOf(home: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        return Number(pid) !== process.pid && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(home);
      } catch {
        return false;
      }
    })
    .map(Number);
}

const start = (nebo: Nebo, env: Record<string, string>) =>
  run(process.execPath, ['apps/all-in-one/dist/main.js'], { ...nebo.env, ...env });

describe('starting and stopping', () => {
  it('keeps keys and data over a stop and over a kill -9, stops within ten seconds, leaves nothing behind', async () => {
    const nebo = await Nebo.start();
    try {
      const first = nebo.credentials.accounts[0]!;
      expect(nebo.output).toContain(first.api_key);
      expect(nebo.output).toContain('simulator');
      const stopped = await nebo.down();
      expect(stopped.code).toBe(0);
      expect(stopped.ms).toBeLessThan(10_000);
      expect(processesOf(nebo.home)).toEqual([]);

      await nebo.up();
      expect(nebo.credentials.accounts[0]).toEqual(first);
      await nebo.down('SIGKILL');
      await nebo.up();
      const balance = await fetch(`${nebo.credentials.base_url}/account/balance`, {
        headers: { authorization: `Bearer ${first.api_key}` },
      });
      expect(balance.status).toBe(200);

      const second = await start(nebo, {});
      expect(second.code).toBe(1);
      expect(second.stderr).toMatch(/port \d+ is taken; choose another with NEBO_API_PORT/);
      const sameHome = await start(nebo, {
        NEBO_API_PORT: '0',
        NEBO_AI_PORT: '0',
        NEBO_EDGE_PORT: '0',
        NEBO_EDGE_TLS_PORT: '0',
        NEBO_DNS_PORT: '0',
      });
      expect(sameHome.stderr).toMatch(/is in use by process \d+/);
    } finally {
      await nebo.dispose();
    }
    await until(() => processesOf(nebo.home).length === 0, 5_000);
  });

  it('a Ctrl-C while it starts stops what has been started', async () => {
    const nebo = await Nebo.start();
    await nebo.down();
    for (const step of ['starting PostgreSQL', 'starting services', 'starting region agent']) {
      const child = spawn(process.execPath, ['apps/all-in-one/dist/main.js'], {
        cwd: root,
        env: { ...process.env, ...nebo.env },
        stdio: ['ignore', 'ignore', 'pipe'],
      });
      let words = '';
      child.stderr.on('data', (chunk) => (words += chunk));
      const ended = once(child, 'exit');
      await until(() => words.includes(step), 30_000, 5);
      child.kill('SIGINT');
      expect(await ended).toEqual([0, null]);
      expect(words).toContain('stopped; the data stays');
      expect(processesOf(nebo.home)).toEqual([]);
    }
    await nebo.up();
    await nebo.dispose();
  });

  it('the keys that it tells are of its database: where that is another one, there is a new demo account', async () => {
    const nebo = await Nebo.start();
    try {
      const former = nebo.credentials.accounts[0]!;
      await nebo.down();
      rmSync(join(nebo.home, 'postgres'), { recursive: true });
      await nebo.up();
      const [demo] = nebo.credentials.accounts;
      const balance = await fetch(`${nebo.credentials.base_url}/account/balance`, {
        headers: { authorization: `Bearer ${demo!.api_key}` },
      });
      expect(balance.status).toBe(200);
      expect(nebo.output).toContain('a new one was made');
      expect(readFileSync(join(nebo.home, 'credentials.json.old'), 'utf8')).toContain(former.api_key);
    } finally {
      await nebo.dispose();
    }
  });

  it('on an address of its own the doors are told as they are, and agent and operator find them there', async () => {
    const nebo = await Nebo.start({ NEBO_BIND: '127.0.0.2' });
    try {
      expect(nebo.credentials.base_url).toMatch(/^http:\/\/127\.0\.0\.2:/);
      const answer = await fetch(`${nebo.credentials.base_url}/account`, {
        headers: { authorization: `Bearer ${nebo.credentials.accounts[0]!.api_key}` },
      });
      expect(answer.status).toBe(200);
      // Its agent says so much when it has taken the region.
      await until(async () => (await nebo.admin('region', 'list')).data[0].capacity !== null, 10_000, 200);
      expect(nebo.output).not.toContain('does not answer');
    } finally {
      await nebo.dispose();
    }
  });

  it('two installations run side by side', async () => {
    const [one, two] = await Promise.all([Nebo.start(), Nebo.start()]);
    try {
      const key = one.credentials.accounts[0]!.api_key;
      const status = async (nebo: Nebo) =>
        (await fetch(`${nebo.credentials.base_url}/account`, { headers: { authorization: `Bearer ${key}` } }))
          .status;
      expect(await status(one)).toBe(200);
      expect(await status(two)).toBe(401);
    } finally {
      await Promise.all([one.dispose(), two.dispose()]);
    }
  });

  it('a busy port, a wrong setting and a broken data folder are one clear line each', async () => {
    const nebo = await Nebo.start();
    await nebo.down();
    const squatter = createServer();
    await new Promise<void>((resolve) =>
      squatter.listen(Number(nebo.env.NEBO_EDGE_PORT), '127.0.0.1', resolve),
    );
    const oneLine = async (env: Record<string, string>, pattern: RegExp) => {
      const { code, stderr } = await start(nebo, env);
      expect(code).toBe(1);
      expect(stderr.split('\n').filter((line) => line.includes('does not start'))).toEqual([
        expect.stringMatching(pattern),
      ]);
      expect(stderr).not.toMatch(/\n\s+at /);
    };
    await oneLine({}, /port \d+ is taken; choose another with NEBO_EDGE_PORT/);
    await new Promise<void>((resolve) => squatter.close(() => resolve()));
    await oneLine({ NEBO_API_PORT: 'http' }, /NEBO_API_PORT must be a whole number/);
    await oneLine({ NEBO_BIND: '192.0.2.7' }, /NEBO_BIND: 192\.0\.2\.7 is no address of this machine/);
    renameSync(join(nebo.home, 'master.key'), join(nebo.home, 'kept.key'));
    await oneLine({}, /master\.key is not there, and nothing else opens the database/);
    renameSync(join(nebo.home, 'kept.key'), join(nebo.home, 'master.key'));
    await oneLine({ NEBO_RATE_LIMIT: 'many' }, /NEBO_RATE_LIMIT must look like/);
    await oneLine({ NEBO_INFERENCE_CONFIG: '/no/such/file.yaml' }, /\/no\/such\/file\.yaml/);
    rmSync(join(nebo.home, 'postgres/global'), { recursive: true });
    await oneLine({}, /PostgreSQL does not start on .*postgres/);
    await nebo.dispose();
  });
});
