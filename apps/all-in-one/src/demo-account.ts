import type { Peers } from '@nebo/service-kit';
import { type Credentials, type DemoAccount, readCredentials, writeCredentials } from './credentials.js';

type Addresses = Pick<Credentials, 'base_url' | 'ai_url' | 'edge_url' | 'edge_tls_url' | 'dns_address'>;

const billing = <T>(peers: Peers, path: string, body: object): Promise<T> =>
  peers.call<T>('identity-billing', `/internal/v1/operator/${path}`, {
    account: null,
    body,
    timeoutMs: 10_000,
  });

/**
 * The demo account of this data folder: made at the first start, the same keys at every later one. What was made before a
 * crash without its keys having been written is left alone, and a new account is made.
 */
export async function ensureDemo(home: string, peers: Peers, addresses: Addresses): Promise<Credentials> {
  const known = readCredentials(home);
  const accounts = known?.accounts.length ? known.accounts : [await createDemo(peers)];
  const credentials: Credentials = { panel_url: null, ...addresses, accounts };
  writeCredentials(home, credentials);
  return credentials;
}

async function createDemo(peers: Peers): Promise<DemoAccount> {
  const name = 'demo';
  const account = await billing<{ account_id: string; project_id: string }>(peers, 'account-create', {
    name,
    topup: '1000000',
  });
  await billing(peers, 'project-create', { account: account.account_id, name: 'sandbox' });
  const key = await billing<{ key: string }>(peers, 'key-create', { account: account.account_id });
  const inferenceKey = await billing<{ key: string }>(peers, 'inference-key-create', {
    account: account.account_id,
  });
  return {
    name,
    account_id: account.account_id,
    project_id: account.project_id,
    api_key: key.key,
    inference_key: inferenceKey.key,
  };
}
