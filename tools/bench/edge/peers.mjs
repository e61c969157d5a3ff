/** The programs that the edge is measured against, each with the same two sites, in a folder of its own, one worker on one core. */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const found = (...paths) => paths.find((path) => existsSync(path)) ?? null;
const nginxBinary = found('/usr/sbin/nginx', '/usr/local/sbin/nginx');
const caddyBinary = found('/usr/bin/caddy', '/usr/local/bin/caddy');
export const h2load = found('/usr/bin/h2load', '/usr/local/bin/h2load');
export const wrk = found('/usr/bin/wrk', '/usr/local/bin/wrk');

/** The command before a program, so that what is measured has one core to itself and all else the other. */
export const pinned = (core, command, args) =>
  existsSync('/usr/bin/taskset')
    ? ['/usr/bin/taskset', ['-c', String(core), command, ...args]]
    : [command, args];

/**
 * @typedef {{ folder: string, site: string, backend: number, port: number, tlsPort: number, cert: string, key: string }} Place
 * `site`: the folder of files; `cert` and `key`: files of a certificate for both names
 */

/** @returns a started nginx, or null where it is not installed */
export function nginx({ folder, site, backend, port, tlsPort, cert, key }, core) {
  if (!nginxBinary) return null;
  const home = join(folder, `nginx-${port}`);
  mkdirSync(home);
  const listen = tlsPort
    ? [
        `    listen 127.0.0.1:${port};`,
        `    listen 127.0.0.1:${tlsPort} ssl http2;`,
        `    ssl_certificate ${cert};`,
        `    ssl_certificate_key ${key};`,
      ]
    : [`    listen 127.0.0.1:${port};`];
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (kind) => `  ${kind}_temp_path ${home}/${kind};`,
  );
  const lines = [
    'daemon off;',
    'worker_processes 1;',
    `pid ${home}/pid;`,
    `error_log ${home}/error.log error;`,
    'events { worker_connections 4096; }',
    'http {',
    ...temporary,
    '  access_log off;',
    '  include /etc/nginx/mime.types;',
    '  sendfile on;',
    '  tcp_nopush on;',
    '  keepalive_requests 1000000000;',
    `  upstream app { server 127.0.0.1:${backend}; keepalive 128; keepalive_requests 1000000000; }`,
    '  server {',
    ...listen,
    '    server_name app.apps.localhost;',
    '    location / {',
    '      proxy_pass http://app;',
    '      proxy_http_version 1.1;',
    '      proxy_set_header Connection "";',
    '      proxy_set_header Host $host;',
    '      proxy_set_header X-Forwarded-For $remote_addr;',
    '      proxy_set_header X-Forwarded-Proto $scheme;',
    '      proxy_buffering off;',
    '    }',
    '  }',
    '  server {',
    ...listen,
    '    server_name files.apps.localhost;',
    `    root ${site};`,
    '  }',
    '}',
  ];
  writeFileSync(join(home, 'nginx.conf'), `${lines.join('\n')}\n`);
  const child = spawn(
    ...pinned(core, nginxBinary, ['-c', join(home, 'nginx.conf'), '-p', home, '-e', join(home, 'error.log')]),
    { stdio: ['ignore', 'ignore', 'inherit'] },
  );
  return { child, workers: true };
}

/** @returns a started Caddy of one thread that runs Go, or null where it is not installed */
export function caddy({ folder, site, backend, port, tlsPort, cert, key }, core) {
  if (!caddyBinary) return null;
  const home = join(folder, 'caddy');
  mkdirSync(home);
  const hosts = (name) => `http://${name}:${port}`;
  const secure = (name) => `https://${name}:${tlsPort}`;
  const app = ['  reverse_proxy 127.0.0.1:' + backend];
  const files = [`  root * ${site}`, '  file_server'];
  const lines = [
    '{',
    '  admin off',
    '  auto_https off',
    '  default_bind 127.0.0.1',
    '  log {',
    '    level ERROR',
    '  }',
    '}',
    ...[
      ['app.apps.localhost', app],
      ['files.apps.localhost', files],
    ].flatMap(([name, what]) => [
      `${hosts(name)} {`,
      ...what,
      '}',
      `${secure(name)} {`,
      `  tls ${cert} ${key}`,
      ...what,
      '}',
    ]),
  ];
  writeFileSync(join(home, 'Caddyfile'), `${lines.join('\n')}\n`);
  const child = spawn(
    ...pinned(core, caddyBinary, ['run', '--config', join(home, 'Caddyfile'), '--adapter', 'caddyfile']),
    {
      // It tells its whole life on stderr; that it runs is seen by its port.
      stdio: 'ignore',
      env: { ...process.env, GOMAXPROCS: '1', XDG_DATA_HOME: home, XDG_CONFIG_HOME: home, HOME: home },
    },
  );
  return { child, workers: false };
}
