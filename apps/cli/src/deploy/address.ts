import type { V1AppDomain } from '@nebo/contracts';
import { at, type ApiClient } from '../http/client.js';

/** The address of an app: its default domain, else its first one, as https; null when it has none yet. */
export async function addressOf(client: ApiClient, appId: string): Promise<string | null> {
  // Domains of another type than `current` show one build for a preview.
  const domains = (await client.list<V1AppDomain>(at`/apps/${appId}/domains`)).filter(
    ({ type }) => (type ?? 'current') === 'current',
  );
  const found = domains.find((domain) => domain.is_default) ?? domains[0];
  return found ? (found.url ?? `https://${found.domain}`) : null;
}
