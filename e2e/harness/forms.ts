import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ApiAnswer } from './api.js';
import { Nebo } from './nebo.js';
import { findNatsServer, startSplit } from './split.mjs';

/** An installation in either form, as far as a test of both needs it. */
export interface Installation {
  baseUrl: string;
  aiUrl: string;
  /** App addresses, plain. */
  edgeUrl: string;
  edgeTlsPort: number;
  /** The name server, `host:port`. */
  dnsAddress: string;
  /** Data folder: the local certificate authority lies in it. */
  home: string;
  account: string;
  project: string;
  key: string;
  inferenceKey: string;
  admin(...words: string[]): Promise<ApiAnswer['body']>;
  /** Ends it and starts it again on its data; null where that is not one process. */
  restart: (() => Promise<void>) | null;
  stop(): Promise<void>;
}

/** The forms that can be had here, by name; the split one needs a nats-server. */
export const forms: readonly {
  form: string;
  missing: boolean;
  start(env: Record<string, string>): Promise<Installation>;
}[] = [
  {
    form: 'in one process',
    missing: false,
    start: async (env) => {
      const nebo = await Nebo.start(env);
      const { base_url: baseUrl, ai_url: aiUrl, edge_url: edgeUrl, accounts } = nebo.credentials;
      return {
        baseUrl,
        aiUrl,
        edgeUrl,
        edgeTlsPort: Number(nebo.env['NEBO_EDGE_TLS_PORT']),
        dnsAddress: nebo.credentials.dns_address,
        home: nebo.home,
        ...partsOf(accounts[0]!),
        admin: (...words) => nebo.admin(...words),
        restart: async () => {
          await nebo.down();
          await nebo.up();
        },
        stop: () => nebo.dispose(),
      };
    },
  },
  {
    form: `in the split form${findNatsServer() === null ? ' (SKIPPED: nats-server is not here)' : ''}`,
    missing: findNatsServer() === null,
    start: async (env) => {
      const split = await startSplit({ env });
      const { baseUrl, aiUrl, edgeUrl, credentials } = split;
      return {
        baseUrl,
        aiUrl,
        edgeUrl,
        edgeTlsPort: Number(split.env['NEBO_EDGE_TLS_PORT']),
        dnsAddress: split.dnsAddress,
        home: split.home,
        ...partsOf(credentials.accounts[0]!),
        admin: (...words) => split.admin(...words),
        restart: null,
        stop: () => split.stop(),
      };
    },
  },
];

const partsOf = (account: {
  account_id: string;
  project_id: string;
  api_key: string;
  inference_key: string;
}) => ({
  account: account.account_id,
  project: account.project_id,
  key: account.api_key,
  inferenceKey: account.inference_key,
});

/** Writes an inference file that lives as long as the test. */
export function inferenceFile(yaml: string): { path: string; remove(): void } {
  const folder = mkdtempSync(join(tmpdir(), 'nebo-inference-'));
  const path = join(folder, 'inference.yaml');
  writeFileSync(path, yaml);
  return { path, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
