import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { initFailure, startEmbeddedPostgres } from './embedded.js';

describe('embedded PostgreSQL', () => {
  const home = mkdtempSync(join(tmpdir(), 'nebo-embedded-'));
  afterAll(() => rmSync(home, { recursive: true, force: true }));

  const query = async (url: string, text: string) => {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    try {
      return (await client.query(text)).rows;
    } finally {
      await client.end();
    }
  };

  it('keeps data over a stop, asks for the password, and takes over from a server that was left behind', async () => {
    const first = await startEmbeddedPostgres(home, 'secret');
    await query(first.url, 'create table kept (id int); insert into kept values (1)');
    await expect(query(first.url.replace('secret', 'wrong'), 'select 1')).rejects.toThrow('password');
    expect(statSync(join(home, 'postgres')).mode & 0o077).toBe(0);
    await first.stop();

    // A server whose owner was killed: it stays, and is ended by the next start.
    const orphan = await startEmbeddedPostgres(home, 'secret');
    const second = await startEmbeddedPostgres(home, 'secret');
    expect(await query(second.url, 'select id from kept')).toEqual([{ id: 1 }]);
    await expect(query(orphan.url, 'select 1')).rejects.toThrow();
    await second.stop();
  });

  it('a broken data folder is one sentence that names it', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'nebo-broken-'));
    const server = await startEmbeddedPostgres(folder, 'secret');
    await server.stop();
    rmSync(join(folder, 'postgres/global'), { recursive: true });
    await expect(startEmbeddedPostgres(folder, 'secret')).rejects.toThrow(
      /PostgreSQL does not start on .*postgres: /,
    );
    rmSync(folder, { recursive: true });
  });

  it('a data folder that could not be made is told with its reason, such as a full disk', () => {
    const full = [
      'Command failed: /usr/bin/setpriv /opt/initdb -D /data',
      '2026-11-22 18:47:09.660 UTC [14812] FATAL:  could not extend file "base/1/2691": No space left on device',
      '2026-11-22 18:47:09.660 UTC [14812] HINT:  Check free disk space.',
      'child process exited with exit code 134',
      'initdb: removing contents of data directory "/data"',
      '',
    ];
    expect(initFailure(full.join('\n'))).toBe('could not extend file "base/1/2691": No space left on device');
    const closed =
      'Command failed: initdb\ninitdb: error: could not access directory "/data": Permission denied\n';
    expect(initFailure(closed)).toBe('could not access directory "/data": Permission denied');
    expect(initFailure('spawn initdb ENOENT')).toBe('spawn initdb ENOENT');
  });

  it('does not mistake another process with the same number for its server', async () => {
    const stranger = spawn('sleep', ['30']);
    writeFileSync(join(home, 'postgres/postmaster.pid'), `${stranger.pid}\n`);
    const server = await startEmbeddedPostgres(home, 'secret');
    expect(stranger.exitCode).toBeNull();
    await server.stop();
    stranger.kill();
  });
});
