import { type EnvEntry } from '@nebo/contracts';
import { type EgressProxy } from '@nebo/safe-net';
import { type Egress } from './types.js';

/** The way out through a proxy of this process; null: it listens at no address. */
export function egressOf(proxy: EgressProxy): Egress | null {
  return proxy.url === null ? null : { proxyUrl: proxy.url, door: (address) => proxy.door(address) };
}

/**
 * Variables that lead HTTP clients, Node's own fetch included, through a proxy.
 * @param past further entries of `NO_PROXY`: what is reached without it
 */
export function proxyEnv(proxyUrl: string, past: readonly string[] = []): EnvEntry[] {
  const names = [
    'HTTP_PROXY',
    'HTTPS_PROXY',
    'http_proxy',
    'https_proxy',
    'npm_config_proxy',
    'npm_config_https_proxy',
  ];
  const local = ['localhost', '127.0.0.1', '::1', ...past].join(',');
  return [
    ...names.map((name) => ({ name, value: proxyUrl, secret: false })),
    { name: 'NO_PROXY', value: local, secret: false },
    { name: 'no_proxy', value: local, secret: false },
    { name: 'NODE_USE_ENV_PROXY', value: '1', secret: false },
  ];
}
