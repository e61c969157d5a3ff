/** Name servers of Debian, each with the bench's zone, in a folder of its own. */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const found = (...paths) => paths.find((path) => existsSync(path)) ?? null;
const knotd = found('/usr/sbin/knotd');
const pdns = found('/usr/sbin/pdns_server');
const pdnsutil = found('/usr/bin/pdnsutil');
const sqlite = found('/usr/bin/sqlite3');
const schema = found('/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql');

/** The command before a server, so that server and load have a core each where there are two. */
export const pinned = (core, command, args) =>
  existsSync('/usr/bin/taskset')
    ? ['/usr/bin/taskset', ['-c', String(core), command, ...args]]
    : [command, args];

const start = (command, args) =>
  spawn(...pinned(0, command, args), { stdio: ['ignore', 'ignore', 'inherit'] });

/** @returns starts knot on a port, or null where it is not installed */
export function knot(folder, port, zone, file) {
  if (!knotd) return null;
  mkdirSync(join(folder, 'knot'));
  const config = join(folder, 'knot/knot.conf');
  const lines = [
    'server:',
    `    rundir: "${folder}/knot"`,
    `    listen: 127.0.0.1@${port}`,
    '    udp-workers: 1',
    '    tcp-workers: 1',
    'log:',
    '  - target: stderr',
    '    any: error',
    'database:',
    `    storage: "${folder}/knot"`,
    'zone:',
    `  - domain: ${zone}`,
    `    file: "${file}"`,
    '    zonefile-sync: -1',
    '    journal-content: none',
  ];
  writeFileSync(config, `${lines.join('\n')}\n`);
  return start(knotd, ['-c', config]);
}

/** @returns starts PowerDNS with SQLite and its packet cache, or null where it is not installed */
export function powerdns(folder, port, zone, file) {
  if (!pdns || !pdnsutil || !sqlite || !schema) return null;
  const home = join(folder, 'pdns');
  mkdirSync(home);
  const database = join(home, 'pdns.db');
  const lines = [
    'launch=gsqlite3',
    `gsqlite3-database=${database}`,
    'local-address=127.0.0.1',
    `local-port=${port}`,
    `socket-dir=${home}`,
    'receiver-threads=1',
    'loglevel=2',
  ];
  writeFileSync(join(home, 'pdns.conf'), `${lines.join('\n')}\n`);
  execFileSync(sqlite, [database, `.read ${schema}`]);
  execFileSync(pdnsutil, [`--config-dir=${home}`, 'load-zone', zone, file], { stdio: 'ignore' });
  return start(pdns, [`--config-dir=${home}`, '--daemon=no', '--guardian=no', '--disable-syslog']);
}
