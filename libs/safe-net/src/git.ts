import { isIP } from 'node:net';
import { resolveChecked, type DialOptions } from './dial.js';
import { SafeNetRefused } from './errors.js';
import { bareName, checkHost, type AllowList, type UrlPolicy } from './policy.js';

/** What to run git with. */
export interface GitOptions {
  /** Hosts that may be private or plain http. */
  allow?: AllowList;
  refuseNames?: readonly string[];
  command?: 'clone' | 'fetch' | 'ls-remote';
  /** Where a clone goes; the repository that a fetch fills. Required for both. */
  directory?: string;
  /** Full hash of the one commit to fetch; without it a fetch takes `ref`. */
  commit?: string;
  /** Branch or tag. */
  ref?: string;
  /** Default 1. */
  depth?: number;
  /** Egress proxy that makes the same checks, `http://host:port`; https and http remotes go through it. */
  proxy?: string;
  /** Checked addresses of the host; git is pinned to the first, so that its own DNS question cannot differ. */
  addresses?: readonly string[];
  /** Program that prints the credential on stdout; it comes by a pipe, never in the URL. */
  askpass?: string;
  /** Files for ssh remotes; without a known_hosts file no host is trusted. */
  sshKeyFile?: string;
  sshKnownHostsFile?: string;
}

/** A git call: `execFile('git', args, { env })`. `env` is complete; nothing of this process's environment goes along. */
export interface GitCall {
  args: string[];
  env: Record<string, string>;
  /** The URL as git gets it, in one canonical form. */
  url: string;
  protocol: 'https' | 'http' | 'ssh';
  host: string;
  port: number;
}

interface Remote {
  url: string;
  protocol: GitCall['protocol'];
  host: string;
  port: number;
  allowed: boolean;
}

const refuse = (rule: string, words: string): never => {
  throw new SafeNetRefused(rule, words);
};

// eslint-disable-next-line no-control-regex
const control = /[\u0000-\u0020\u007f\\]/;

/** Checks a remote's text. scp-like `git@host:path` becomes ssh://. @throws SafeNetRefused */
function parseRemote(text: string, options: GitOptions): Remote {
  if (text.length > 2_048) refuse('url_length', 'the git URL is longer than 2048 characters');
  if (text.startsWith('-')) refuse('option', 'a git URL must not start with a hyphen');
  if (control.test(text)) refuse('characters', 'the git URL has spaces, control characters or backslashes');
  // <transport>::<address> runs git-remote-<transport>: ext:: is a command line.
  if (/^[^/]*::/.test(text)) refuse('scheme', 'git transport helpers are not allowed');
  const scp = /^(?:([^@/:]+)@)?(\[[^\]]+\]|[^:/@]+):(?!\/\/)(.*)$/.exec(text);
  let url: URL;
  try {
    url = new URL(
      scp === null ? text : `ssh://${scp[1] ?? 'git'}@${scp[2]}/${(scp[3] ?? '').replace(/^\/+/, '')}`,
    );
  } catch {
    return refuse('invalid_url', 'this is not a valid git URL');
  }
  const protocol = url.protocol.slice(0, -1);
  if (protocol !== 'https' && protocol !== 'http' && protocol !== 'ssh') {
    return refuse('scheme', 'only https and ssh git URLs are allowed');
  }
  if (url.password !== '' || (protocol !== 'ssh' && url.username !== '')) {
    refuse('userinfo', 'credentials must not be part of the git URL');
  }
  if (protocol === 'ssh' && !/^[a-z_][a-z0-9_.-]{0,31}$/i.test(url.username || 'git')) {
    refuse('userinfo', 'this is not an ssh user name');
  }
  if (url.search !== '' || url.hash !== '') refuse('invalid_url', 'a git URL has neither query nor fragment');
  if (url.pathname.replace(/\/+/g, '') === '') refuse('invalid_url', 'the git URL names no repository');
  const host = canonicalHost(url.hostname);
  const port = url.port !== '' ? Number(url.port) : { https: 443, http: 80, ssh: 22 }[protocol];
  if (host.startsWith('-')) refuse('option', 'a host name must not start with a hyphen');
  const allowed = options.allow?.has(host, port) ?? false;
  if (protocol === 'http' && !allowed) refuse('scheme', 'only https and ssh git URLs are allowed');
  const policy: UrlPolicy = {
    ports: protocol === 'ssh' ? [22] : [443],
    refuseNames: options.refuseNames ?? [],
  };
  checkHost(host, port, allowed, policy);
  const named = isIP(host) === 6 ? `[${host}]` : host;
  const user = protocol === 'ssh' ? `${url.username || 'git'}@` : '';
  const shownPort = url.port === '' ? '' : `:${port}`;
  return { url: `${protocol}://${user}${named}${shownPort}${url.pathname}`, protocol, host, port, allowed };
}

/** The URL standard leaves hosts of ssh: as they are; `0x7f.1` must be seen as what git's resolver will make of it. */
function canonicalHost(hostname: string): string {
  try {
    const host = new URL(`http://${hostname}/`).hostname;
    return bareName(host.startsWith('[') ? host.slice(1, -1) : host);
  } catch {
    return refuse('invalid_url', 'this is not a valid host name');
  }
}

/**
 * argv and environment of `git clone` or `git ls-remote` of an address that a user gave: no transport helpers, hooks,
 * submodules, LFS, prompts, redirects or configuration of this machine. Checks what can be known without DNS; use
 * `prepareGit` where no proxy checks the rest.
 * @throws SafeNetRefused
 */
export function safeGitArgs(text: string, options: GitOptions = {}): GitCall {
  const remote = parseRemote(text, options);
  const command = options.command ?? 'clone';
  const ref = options.ref;
  if (ref !== undefined && !isRef(ref)) refuse('ref', 'this is not the name of a branch or tag');
  const config = [
    'protocol.ext.allow=never',
    'protocol.file.allow=never',
    'core.hooksPath=/dev/null',
    'core.fsmonitor=false',
    'core.protectHFS=true',
    'core.protectNTFS=true',
    'credential.helper=',
    'http.followRedirects=false',
    'http.lowSpeedLimit=1000',
    'http.lowSpeedTime=30',
    'submodule.recurse=false',
    'transfer.fsckObjects=true',
    // Settings of the environment (http_proxy) must not decide where git connects.
    `http.proxy=${options.proxy ?? ''}`,
    ...pinned(remote, options),
  ];
  const flags = config.flatMap((setting) => ['-c', setting]);
  if (command === 'ls-remote') {
    const args = [...flags, 'ls-remote', '--', remote.url, ...(ref === undefined ? [] : [ref])];
    return { ...pick(remote), args, env: environment(remote, options) };
  }
  const directory = options.directory ?? refuse('directory', `${command} needs a directory`);
  if (directory.startsWith('-') || directory.includes('\0')) refuse('directory', 'this is not a directory');
  if (command === 'fetch') {
    const what = options.commit ?? ref ?? refuse('ref', 'fetch needs a commit or a ref');
    if (options.commit !== undefined && !/^([0-9a-f]{40}|[0-9a-f]{64})$/.test(options.commit))
      refuse('ref', 'this is not the full hash of a commit');
    const fetch = ['fetch', '--quiet', `--depth=${depthOf(options)}`, '--no-tags', '--no-recurse-submodules'];
    const args = [...flags, '-C', directory, ...fetch, '--', remote.url, what];
    return { ...pick(remote), args, env: environment(remote, options) };
  }
  const clone = [
    'clone',
    `--depth=${depthOf(options)}`,
    '--no-tags',
    '--single-branch',
    '--no-recurse-submodules',
    '--template=',
  ];
  const branch = ref === undefined ? [] : [`--branch=${ref}`];
  const args = [...flags, ...clone, ...branch, '--', remote.url, directory];
  return { ...pick(remote), args, env: environment(remote, options) };
}

/**
 * `safeGitArgs` after resolving the host and checking every address; git is pinned to a checked one. With a proxy the name
 * is not resolved here: the proxy checks and dials.
 * @throws SafeNetRefused, SafeNetFailed('dns')
 */
export async function prepareGit(
  text: string,
  options: GitOptions & Pick<DialOptions, 'lookup'> & { signal?: AbortSignal } = {},
): Promise<GitCall> {
  const { host, port, allowed, protocol } = parseRemote(text, options);
  if (options.proxy !== undefined && protocol !== 'ssh') return safeGitArgs(text, options);
  const signal = options.signal ?? AbortSignal.timeout(10_000);
  return safeGitArgs(text, {
    ...options,
    addresses: await resolveChecked(host, port, allowed, options, signal),
  });
}

const pick = ({ url, protocol, host, port }: Remote) => ({ url, protocol, host, port });

function depthOf({ depth = 1 }: GitOptions): number {
  if (!Number.isInteger(depth) || depth < 1) refuse('depth', 'depth is a positive integer');
  return depth;
}

/** git's own rules for names (git-check-ref-format), short of those that only allow more. */
function isRef(ref: string): boolean {
  return (
    /^[\p{L}\p{N}_.][\p{L}\p{N}_./+@#-]{0,254}$/u.test(ref) &&
    !/\.\.|\/\/|@\{|\/\.|\.lock(\/|$)|[./]$/.test(ref)
  );
}

function pinned({ protocol, host, port }: Remote, { addresses, proxy }: GitOptions): string[] {
  const address = addresses?.[0];
  if (address === undefined || protocol === 'ssh' || proxy !== undefined || isIP(host) !== 0) return [];
  return [`http.curloptResolve=${host}:${port}:${isIP(address) === 6 ? `[${address}]` : address}`];
}

function environment(remote: Remote, options: GitOptions): Record<string, string> {
  return {
    PATH: '/usr/local/bin:/usr/bin:/bin',
    HOME: '/nonexistent',
    LC_ALL: 'C',
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_ALLOW_PROTOCOL: remote.protocol === 'http' ? 'https:ssh:http' : 'https:ssh',
    GIT_TERMINAL_PROMPT: '0',
    GIT_LFS_SKIP_SMUDGE: '1',
    GIT_ASKPASS: options.askpass ?? '/bin/false',
    SSH_ASKPASS: '/bin/false',
    ...(remote.protocol === 'ssh'
      ? { GIT_SSH_COMMAND: sshCommand(remote, options), GIT_SSH_VARIANT: 'ssh' }
      : {}),
  };
}

/** git runs this by a shell, so each word is quoted; the address is pinned by HostName, the key by HostKeyAlias. */
function sshCommand({ host }: Remote, options: GitOptions): string {
  const settings = [
    'BatchMode=yes',
    'ForwardAgent=no',
    'ClearAllForwardings=yes',
    'PermitLocalCommand=no',
    'ProxyCommand=none',
    'ConnectTimeout=10',
    'StrictHostKeyChecking=yes',
    `UserKnownHostsFile=${options.sshKnownHostsFile ?? '/dev/null'}`,
    'GlobalKnownHostsFile=/dev/null',
    `HostKeyAlias=${host}`,
    ...(options.addresses?.[0] === undefined ? [] : [`HostName=${options.addresses[0]}`]),
    ...(options.sshKeyFile === undefined ? [] : [`IdentityFile=${options.sshKeyFile}`, 'IdentitiesOnly=yes']),
  ];
  const words = ['ssh', '-F', '/dev/null', ...settings.flatMap((setting) => ['-o', setting])];
  return words.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
}
