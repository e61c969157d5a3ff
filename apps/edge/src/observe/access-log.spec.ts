import { hostname } from 'node:os';
import { AccessLog } from './access-log.js';
import { type AccessEntry } from './access.js';

const entry: AccessEntry = {
  at: '2026-11-21T10:00:00.000Z',
  request_id: 'b0d3a3f0-1111-4222-8333-444455556666',
  method: 'GET',
  host: 'shop.apps.localhost',
  path: '/a%20b',
  secure: true,
  remote: '::1',
  user_agent: 'curl/8',
  kind: 'replicas',
  status: 200,
  protocol: 'h1',
  bytes: 1_234,
  duration_ms: 0.123,
  aborted: false,
  account_id: 'acc',
  app_id: 'app',
  build_id: 'build',
  replica_id: 'r0',
  retries: 0,
};

describe('access log', () => {
  it('every line is JSON with all that the entry has and what every line has, whatever strangers send', () => {
    const written: string[] = [];
    const log = new AccessLog({ write: (lines) => written.push(lines) }, 'edge');
    const hostile = [
      '"',
      '\\',
      '\n',
      '\r\n{"level":60}\n',
      '\0',
      '\x7f',
      '\x1b[31m',
      'ж',
      '\u2028',
      '\ud800',
      '",{"a":1}',
      '',
    ];
    const entries: AccessEntry[] = [
      entry,
      {
        ...entry,
        host: null,
        user_agent: null,
        account_id: null,
        app_id: null,
        build_id: null,
        replica_id: null,
        aborted: true,
        secure: false,
      },
      ...hostile.map((one) => ({
        ...entry,
        path: one,
        user_agent: one,
        method: one,
        host: one,
        app_id: one,
      })),
    ];
    for (const one of entries) log.note(one);
    log.flush();
    const lines = written.join('').split('\n');
    expect(lines.pop()).toBe('');
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual(
      entries.map((one) => ({
        ...one,
        level: 30,
        time: expect.any(Number),
        pid: process.pid,
        hostname: hostname(),
        name: 'edge',
        msg: 'request',
      })),
    );
  });

  it('what comes in one turn is handed over at once, what comes later later', async () => {
    const written: string[] = [];
    const log = new AccessLog({ write: (lines) => written.push(lines) }, 'edge');
    const turn = () => new Promise((resolve) => setImmediate(resolve));
    for (let index = 0; index < 5; index += 1) log.note({ ...entry, status: 200 + index });
    expect(written).toEqual([]);
    await turn();
    expect(written.map((lines) => lines.split('\n').length - 1)).toEqual([5]);
    await turn();
    expect(written).toHaveLength(1);
    log.note(entry);
    await turn();
    expect(written).toHaveLength(2);
    log.flush();
    expect(written).toHaveLength(2);
  });
});
