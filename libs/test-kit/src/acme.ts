import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import https from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import {
  endProcess,
  findProgram,
  freePort,
  noteLive,
  notePid,
  tempFolder,
  waitFor,
  type Found,
} from './parts.js';

const run = promisify(execFile);

/** How an authority for tests is set up. */
export interface AcmeOptions {
  /** `host:port` of the name server that it asks; default one of its own, where all names lead to 127.0.0.1. */
  dnsServer?: string;
  /** Port that it asks for http-01. */
  httpPort: number;
  /** How long its certificates last, seconds. */
  certificateSeconds?: number;
  /** Customers whose accounts it takes, key id → HMAC key (base64url), and no others; default: it takes anybody. */
  bindings?: Record<string, string>;
}

/** A running pebble: a certificate authority that speaks ACME and trusts nobody. */
export interface AcmePart {
  /** Address of the directory. */
  readonly directory: string;
  /** File with the CA that its own address is trusted by. */
  readonly caFile: string;
  /** The root of the certificates that it issues, PEM. */
  root(): Promise<string>;
  /** Makes its own name server answer a TXT record. Only without `dnsServer`. */
  setText(name: string, value: string): Promise<void>;
  /** SIGKILL; `restart` brings it back on the same port, with no memory of accounts and orders. */
  kill(): Promise<void>;
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/** Looks for pebble and pebble-challtestsrv. */
export function findPebble(): Found<{ pebble: string; names: string }> {
  const pebble = findProgram('pebble', ['/usr/bin', '/usr/local/bin']);
  const names = findProgram('pebble-challtestsrv', ['/usr/bin', '/usr/local/bin']);
  if (pebble !== null && names !== null) return { found: { pebble, names }, reason: null };
  return { found: null, reason: 'pebble is not installed (Debian package pebble)' };
}

/** Starts an authority of its own. @throws Error with `findPebble`'s reason when there is none */
export async function startAcme(options: AcmeOptions): Promise<AcmePart> {
  const { found, reason } = findPebble();
  if (found === null) throw new Error(reason!);
  const folder = await tempFolder('acme');
  const children = new Set<ChildProcess>();
  const start = (program: string, args: string[], env: Record<string, string> = {}) => {
    const output = openSync(join(folder.path, 'log'), 'a');
    const child = spawn(program, args, {
      stdio: ['ignore', output, output],
      detached: true,
      cwd: folder.path,
      env: { ...process.env, ...env },
    });
    closeSync(output);
    child.on('error', () => undefined);
    if (child.pid !== undefined) notePid(child.pid);
    child.unref();
    children.add(child);
    return child;
  };
  const stop = async () => {
    forget();
    await Promise.all([...children].map((child) => endProcess(child, 'SIGKILL')));
    folder.remove();
  };
  const forget = noteLive(stop);
  try {
    const [port, management, dnsPort, namesPort] = await Promise.all([
      freePort(),
      freePort(),
      freePort(),
      freePort(),
    ]);
    const caFile = await ownPair(folder.path);
    const config = join(folder.path, 'config.json');
    await writeFile(
      config,
      JSON.stringify({
        pebble: {
          listenAddress: `127.0.0.1:${port}`,
          managementListenAddress: `127.0.0.1:${management}`,
          certificate: join(folder.path, 'server.pem'),
          privateKey: join(folder.path, 'server.key'),
          httpPort: options.httpPort,
          tlsPort: 5001,
          ocspResponderURL: '',
          externalAccountBindingRequired: options.bindings !== undefined,
          externalAccountMACKeys: options.bindings ?? {},
          certificateValidityPeriod: options.certificateSeconds ?? 90 * 86_400,
        },
      }),
    );
    const ca = await readFile(caFile, 'utf8');
    if (options.dnsServer === undefined) {
      const off = ['-http01', '', '-https01', '', '-tlsalpn01', '', '-defaultIPv6', ''];
      const own = ['-dns01', `127.0.0.1:${dnsPort}`, '-management', `127.0.0.1:${namesPort}`];
      start(found.names, [...own, '-defaultIPv4', '127.0.0.1', ...off]);
    }
    const dns = options.dnsServer ?? `127.0.0.1:${dnsPort}`;
    let pebble: ChildProcess;
    const up = async () => {
      pebble = start(found.pebble, ['-config', config, '-dnsserver', dns, '-strict'], {
        PEBBLE_VA_NOSLEEP: '1',
        PEBBLE_WFE_NONCEREJECT: '5',
      });
      await waitFor('pebble', 20_000, async () => {
        if (pebble.exitCode !== null)
          throw new Error(`pebble ended:\n${(await readFile(join(folder.path, 'log'), 'utf8')).slice(-800)}`);
        return get(`https://127.0.0.1:${port}/dir`, ca).catch(() => undefined);
      });
    };
    const down = async () => {
      await endProcess(pebble, 'SIGKILL');
      children.delete(pebble);
    };
    await up();
    return {
      directory: `https://127.0.0.1:${port}/dir`,
      caFile,
      root: () => get(`https://127.0.0.1:${management}/roots/0`, ca),
      async setText(name, value) {
        const answer = await fetch(`http://127.0.0.1:${namesPort}/set-txt`, {
          method: 'POST',
          body: JSON.stringify({ host: name, value }),
        });
        if (!answer.ok) throw new Error(`set-txt answered ${answer.status}`);
      },
      kill: down,
      restart: async () => {
        await down();
        await up();
      },
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** A key pair for pebble's own address. @returns file of the certificate, which is its own CA */
async function ownPair(folder: string): Promise<string> {
  const [cert, key] = [join(folder, 'server.pem'), join(folder, 'server.key')];
  const what = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost'];
  await run('openssl', ['req', '-x509', ...what, ...names, '-keyout', key, '-out', cert]);
  return cert;
}

function get(url: string, ca: string): Promise<string> {
  return new Promise((resolve, reject) => {
    https
      .get(url, { ca, agent: false, timeout: 2_000 }, (answer) => {
        if (answer.statusCode !== 200) reject(new Error(`${url} answered ${answer.statusCode}`));
        else text(answer).then(resolve, reject);
      })
      .on('error', reject);
  });
}
