import { execFile } from 'node:child_process';
import { lookup } from 'node:dns/promises';
import { existsSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { promisify } from 'node:util';

const hostAuthorities = '/etc/ssl/certs/ca-certificates.crt';

/** Whether tests can fetch packages here. */
export interface Registry {
  /** What an egress proxy must allow, since a mirror may have a private address: `host:port`. */
  allow: string;
  /** Why nothing can be fetched; null: it can. */
  missing: string | null;
}

/**
 * The package registry of this machine: `NEBO_TEST_NETWORK=host:port`, else the one that npm is configured for. Mirrors for
 * other languages are taken to be at the same address.
 */
export async function findRegistry(): Promise<Registry> {
  // What this host trusts is trusted in the sandboxes too: a mirror may have a certificate of the company's own authority.
  if (existsSync(hostAuthorities)) process.env['NODE_EXTRA_CA_CERTS'] ??= hostAuthorities;
  try {
    const allow = process.env['NEBO_TEST_NETWORK'] || (await ofNpm());
    const at = allow.lastIndexOf(':');
    await reach(allow.slice(0, at), Number(allow.slice(at + 1)));
    return { allow, missing: null };
  } catch (error) {
    return { allow: '', missing: `no package registry answers: ${(error as Error).message.split('\n')[0]}` };
  }
}

async function ofNpm(): Promise<string> {
  const { stdout } = await promisify(execFile)('npm', ['config', 'get', 'registry'], {
    // Not in this workspace, whose packages have no configuration of their own.
    ...{ cwd: tmpdir(), timeout: 20_000 },
  });
  const { hostname, port, protocol } = new URL(stdout.trim());
  const { address } = await lookup(hostname, { family: 4 });
  return `${address}:${port || (protocol === 'http:' ? '80' : '443')}`;
}

function reach(host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, timeout: 3_000 });
    socket.once('connect', () => {
      socket.destroy();
      resolve();
    });
    socket.once('timeout', () => socket.destroy(new Error('it does not answer within 3 s')));
    socket.once('error', reject);
  });
}
