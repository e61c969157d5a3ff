import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** What `npm start` writes to `<home>/credentials.json` (mode 0600), for people and scripts. */
export interface Credentials {
  base_url: string;
  ai_url: string;
  panel_url: string | null;
  edge_url: string;
  edge_tls_url: string;
  dns_address: string | null;
  accounts: DemoAccount[];
}

export interface DemoAccount {
  name: string;
  account_id: string;
  project_id: string;
  api_key: string;
  inference_key: string;
}

const pathIn = (home: string) => join(home, 'credentials.json');

/** The credentials of an earlier start, or null. */
export function readCredentials(home: string): Credentials | null {
  const path = pathIn(home);
  if (!existsSync(path)) return null;
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Credentials;
  } catch {
    throw new Error(`${path} is broken; move it away to get new demo keys`);
  }
}

/** Writes the file whole or not at all. */
export function writeCredentials(home: string, credentials: Credentials): void {
  const temporary = `${pathIn(home)}.new`;
  writeFileSync(temporary, `${JSON.stringify(credentials, null, 2)}\n`, { mode: 0o600 });
  renameSync(temporary, pathIn(home));
}

/** Keeps credentials that mean nothing here, beside the new ones. @returns their path */
export function putCredentialsAside(home: string): string {
  const aside = `${pathIn(home)}.old`;
  renameSync(pathIn(home), aside);
  return aside;
}
