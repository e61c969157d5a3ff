import { ApiError, type Peers } from '@nebo/service-kit';
import {
  type Credentials,
  type DemoAccount,
  putCredentialsAside,
  readCredentials,
  writeCredentials,
} from './credentials.js';

type Addresses = Pick<Credentials, 'base_url' | 'ai_url' | 'edge_url' | 'edge_tls_url' | 'dns_address'>;

const billing = <T>(peers: Peers, path: string, body: object): Promise<T> =>
  peers.call<T>('identity-billing', `/internal/v1/operator/${path}`, {
    account: null,
    body,
    timeoutMs: 10_000,
  });

/** What `ensureDemo` found or made. */
export interface Demo {
  credentials: Credentials;
  /** Where credentials of another database were put aside; null as a rule. */
  aside: string | null;
}

/**
 * The demo account of this data folder: made at the first start, the same keys at every later one. What was made before a
 * crash without its keys having been written is left alone, and a new account is made; so it is where the database is another one
 * than that of the keys (it was deleted, `DATABASE_URL` names another), whose credentials are then put aside.
 */
export async function ensureDemo(home: string, peers: Peers, addresses: Addresses): Promise<Demo> {
  const known = readCredentials(home)?.accounts ?? [];
  const stands = known[0] !== undefined && (await exists(peers, known[0].account_id));
  const accounts = stands ? known : [await createDemo(peers)];
  const aside = known.length > 0 && !stands ? putCredentialsAside(home) : null;
  const credentials: Credentials = { panel_url: null, ...addresses, accounts };
  writeCredentials(home, credentials);
  return { credentials, aside };
}

async function exists(peers: Peers, accountId: string): Promise<boolean> {
  try {
    const path = `/internal/v1/accounts/${encodeURIComponent(accountId)}`;
    await peers.call('identity-billing', path, { account: null, timeoutMs: 10_000 });
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return false;
    throw error;
  }
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
