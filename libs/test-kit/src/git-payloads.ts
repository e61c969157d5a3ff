import { createHmac } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type GitDialect, gitDialects, type SentPayload } from './git-host-payloads.js';

/** A kept delivery of a git host: what comes over the wire, and what it says. */
export interface KeptPayload {
  dialect: GitDialect;
  name: string;
  /** The delivery signed with a secret; headers of an installation without one are empty where the host leaves them so. */
  signed(secret: string): SentPayload;
  /** What has to be read from it. */
  says: Record<string, unknown>;
}

const folder = fileURLToPath(new URL('../payloads/', import.meta.url));

const hmac = (algorithm: string, secret: string, body: string) =>
  secret === '' ? '' : createHmac(algorithm, secret).update(body).digest('hex');

/**
 * The deliveries of `libs/test-kit/payloads`, one folder a host, written after the hosts' documentation and captured
 * requests. In headers `<sha256>`, `<sha1>` and `<secret>` stand for what the secret makes of the body.
 */
export function gitPayloads(): KeptPayload[] {
  return gitDialects.flatMap((dialect) =>
    readdirSync(`${folder}${dialect}`)
      .sort()
      .map((file) => {
        const kept = JSON.parse(readFileSync(`${folder}${dialect}/${file}`, 'utf8')) as {
          headers: Record<string, string>;
          body: object;
          says: Record<string, unknown>;
        };
        const body = JSON.stringify(kept.body);
        const signed = (secret: string): SentPayload => ({
          body,
          headers: Object.fromEntries(
            Object.entries(kept.headers).map(([name, value]) => [
              name,
              value
                .replace('<sha256>', hmac('sha256', secret, body))
                .replace('<sha1>', hmac('sha1', secret, body))
                .replace('<secret>', secret),
            ]),
          ),
        });
        return { dialect, name: file.replace(/\.json$/, ''), signed, says: kept.says };
      }),
  );
}
