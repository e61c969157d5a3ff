import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Config } from '@nebo/service-kit';
import { checkMasterKey, checkPorts, reachableHost } from './before-start.js';

const free = {
  NEBO_API_PORT: '0',
  NEBO_AI_PORT: '0',
  NEBO_EDGE_PORT: '0',
  NEBO_EDGE_TLS_PORT: '0',
  NEBO_DNS_PORT: '0',
};

describe('before a start', () => {
  it.each([
    [undefined, '127.0.0.1'],
    ['0.0.0.0', '127.0.0.1'],
    ['::', '127.0.0.1'],
    ['192.0.2.7', '192.0.2.7'],
    ['::1', '[::1]'],
    ['cloud.example.com', 'cloud.example.com'],
  ])('what listens on %s is reached at %s', (bind, host) => {
    expect(reachableHost(new Config(bind === undefined ? {} : { NEBO_BIND: bind }))).toBe(host);
  });

  it('a setting of its own counts before that of all doors', () => {
    const config = new Config({ NEBO_BIND: '192.0.2.7', NEBO_DNS_BIND: '192.0.2.8' });
    expect(reachableHost(config, 'NEBO_DNS_BIND')).toBe('192.0.2.8');
    expect(reachableHost(new Config({ NEBO_BIND: '192.0.2.7' }), 'NEBO_DNS_BIND')).toBe('192.0.2.7');
  });

  it('names the setting that is in the way', async () => {
    await checkPorts(new Config(free));
    const squatter = createServer();
    await new Promise<void>((resolve) => squatter.listen(0, '127.0.0.1', resolve));
    const port = String((squatter.address() as AddressInfo).port);
    const check = (env: Record<string, string>) => checkPorts(new Config({ ...free, ...env }));
    await expect(check({ NEBO_AI_PORT: port })).rejects.toThrow(
      `port ${port} is taken; choose another with NEBO_AI_PORT`,
    );
    await new Promise<void>((resolve) => squatter.close(() => resolve()));
    await expect(check({ NEBO_API_PORT: port, NEBO_EDGE_PORT: port })).rejects.toThrow(
      `NEBO_API_PORT and NEBO_EDGE_PORT are both ${port}`,
    );
    // 192.0.2.0/24 is for documents, nobody has it.
    await expect(check({ NEBO_API_PORT: port, NEBO_BIND: '192.0.2.7' })).rejects.toThrow(
      'NEBO_BIND: 192.0.2.7 is no address of this machine',
    );
  });

  it('a database without its master key is said, and no other key is made for it', () => {
    const home = mkdtempSync(join(tmpdir(), 'nebo-before-'));
    const check = (env: Record<string, string> = {}) => checkMasterKey(new Config(env), home);
    check();
    mkdirSync(join(home, 'postgres'));
    writeFileSync(join(home, 'postgres/PG_VERSION'), '18\n');
    expect(() => check()).toThrow(`${home}/master.key is not there`);
    expect(() => check({ NEBO_MASTER_KEY_FILE: '/no/such/key' })).toThrow('/no/such/key is not there');
    check({ DATABASE_URL: 'postgres://elsewhere/nebo' });
    writeFileSync(join(home, 'master.key'), 'x');
    check();
    rmSync(home, { recursive: true });
  });
});
