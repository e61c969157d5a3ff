import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HealthReport } from '@nebo/service-kit';
import { docsPage, type DocumentedContract } from './docs-page.js';

/** A body made once, with its ETag. */
class Prepared {
  private readonly bytes: Buffer;
  private readonly etag: string;

  constructor(
    text: string,
    private readonly type: string,
  ) {
    this.bytes = Buffer.from(text);
    this.etag = `"${createHash('sha256').update(this.bytes).digest('base64url').slice(0, 22)}"`;
  }

  answer(request: IncomingMessage, response: ServerResponse): void {
    const headers = { etag: this.etag, 'cache-control': 'no-cache', 'x-content-type-options': 'nosniff' };
    const known = (request.headers['if-none-match'] ?? '')
      .split(',')
      .some((tag) => tag.trim().replace(/^W\//, '') === this.etag || tag.trim() === '*');
    if (known) {
      response.writeHead(304, headers).end();
      return;
    }
    response.writeHead(200, { ...headers, 'content-type': this.type, 'content-length': this.bytes.length });
    response.end(request.method === 'HEAD' ? undefined : this.bytes);
  }
}

/** What the gateway answers itself, without a key: health, the contract, its readable form. */
export class OwnAnswers {
  private readonly contract: Prepared;
  private readonly page: Prepared;

  constructor(
    contract: DocumentedContract,
    private readonly health: () => Promise<HealthReport>,
    private readonly metrics: () => Promise<string>,
  ) {
    this.contract = new Prepared(JSON.stringify(contract), 'application/json; charset=utf-8');
    this.page = new Prepared(docsPage(contract), 'text/html; charset=utf-8');
  }

  /** @returns false when the path is none of these */
  handle = (request: IncomingMessage, response: ServerResponse, path: string): boolean => {
    if (request.method !== 'GET' && request.method !== 'HEAD') return false;
    switch (path) {
      case '/v1/openapi.json':
        this.contract.answer(request, response);
        return true;
      case '/docs':
      case '/v1/docs':
        this.page.answer(request, response);
        return true;
      case '/healthz':
        void this.answerHealth(response);
        return true;
      case '/metrics':
        void this.answerMetrics(request, response);
        return true;
      default:
        return false;
    }
  };

  private async answerHealth(response: ServerResponse): Promise<void> {
    const report = await this.health();
    const missing = report.parts.filter((part) => !part.ok && part.required).map((part) => part.name);
    const body = JSON.stringify({ ok: report.ok, missing, parts: report.parts });
    response
      .writeHead(report.ok ? 200 : 503, { 'content-type': 'application/json', 'cache-control': 'no-store' })
      .end(body);
  }

  private async answerMetrics(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // Figures are the operator's: asked for on this machine, or scraped inside the cluster past the public door. What a proxy
    // on this machine hands on comes from elsewhere.
    const { 'x-forwarded-for': forwardedFor, forwarded } = request.headers;
    const isLocal = /^(127\.|::1$|::ffff:127\.)/.test(request.socket.remoteAddress ?? '');
    if (!isLocal || forwardedFor !== undefined || forwarded !== undefined) {
      response.writeHead(404, { 'content-type': 'application/json' });
      response.end('{"error":{"code":"unknown_operation","message":"the API has no such operation"}}');
      return;
    }
    const text = await this.metrics().catch(() => null);
    response
      .writeHead(text === null ? 503 : 200, { 'content-type': 'text/plain; version=0.0.4' })
      .end(text ?? '');
  }
}
