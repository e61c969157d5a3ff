import type { ContractDocument } from '@nebo/contracts';

/** The contract as the documentation page reads it. */
export type DocumentedContract = ContractDocument & { info: { title: string; version: string } };

interface DocumentedOperation {
  operationId?: string;
  summary?: string;
  tags?: string[];
  'x-nebo-permission'?: string[];
}

const escape = (text: string) => text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);

/** One page of all operations, made once at start: no script, nothing fetched from elsewhere. */
export function docsPage(contract: DocumentedContract): string {
  const sections = new Map<string, string[]>();
  for (const [path, item] of Object.entries(contract.paths)) {
    for (const [verb, operation] of Object.entries(item as Record<string, DocumentedOperation>)) {
      const tag = operation.tags?.[0] ?? 'other';
      const rights = operation['x-nebo-permission']?.join(', ') || 'any live key';
      const row = `<tr id="${escape(operation.operationId ?? '')}"><td><code>${verb.toUpperCase()}</code></td><td><code>${escape(path)}</code></td><td>${escape(operation.summary ?? '')}</td><td><code>${escape(rights)}</code></td></tr>`;
      sections.set(tag, [...(sections.get(tag) ?? []), row]);
    }
  }
  const body = [...sections]
    .map(
      ([tag, rows]) =>
        `<h2>${escape(tag)}</h2><table><tr><th>Method</th><th>Path</th><th></th><th>Needs</th></tr>${rows.join('')}</table>`,
    )
    .join('');
  return `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${escape(contract.info.title)}</title>
<style>body{font:14px/20px system-ui,sans-serif;max-width:1100px;margin:32px auto;padding:0 16px;color:#1f2328;background:#fff}table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:6px 8px;border-bottom:1px solid #ddd;vertical-align:top}h2{margin-top:32px}@media(prefers-color-scheme:dark){body{color:#e6e8eb;background:#16181d}td,th{border-color:#333}}</style>
<h1>${escape(contract.info.title)} ${escape(contract.info.version)}</h1><p>Send your key as <code>Authorization: Bearer …</code>. The machine-readable contract: <a href="/v1/openapi.json">openapi.json</a>.</p>${body}</html>`;
}
