import type { Installation } from './installation.js';

/** What a person sees when everything is up. */
export function summary({ credentials, notes }: Installation, home: string, seconds: number): string {
  const [demo] = credentials.accounts;
  const lines = [
    '',
    `Nebo is ready (${seconds.toFixed(1)} s).`,
    '',
    `  Control API    ${credentials.base_url}        documentation: ${credentials.base_url.replace(/\/v1$/, '/docs')}`,
    `  Inference API  ${credentials.ai_url}`,
    `  Apps           ${credentials.edge_url}  and  ${credentials.edge_tls_url}  (*.apps.localhost)`,
    `  Name server    ${credentials.dns_address}  (UDP and TCP)`,
    '',
    `  Account "${demo?.name}"   project ${demo?.project_id}`,
    `  API key        ${demo?.api_key}`,
    `  Inference key  ${demo?.inference_key}`,
    `  The same in    ${home}/credentials.json`,
    '',
    ...notes.map((note) => `  Note: ${note}`),
    '',
    'Try:',
    '  npm run demo',
    `  curl -H "Authorization: Bearer ${demo?.api_key}" ${credentials.base_url}/account/balance`,
    '  npm run -s nebo -- api --list',
    '',
    'Ctrl-C stops everything.',
    '',
  ];
  return lines.join('\n');
}
