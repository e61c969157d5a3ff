import { type IncomingMessage, type ServerResponse } from 'node:http';
import { type Rewritten, type RoutedRequest, type Router } from '@nebo/routing';
import { overlay } from './overlay.js';

/** A request as rules see it, and the rules of its app. */
export class AppliedRules {
  private readonly request: RoutedRequest;

  constructor(
    private readonly router: Router,
    req: IncomingMessage,
    { host, url }: { host: string; url: string },
  ) {
    const at = url.indexOf('?');
    this.request = {
      method: req.method ?? 'GET',
      path: at < 0 ? url : url.slice(0, at),
      query: at < 0 ? '' : url.slice(at),
      host,
      headers: req.headers,
    };
  }

  /**
   * Answers redirects and preflights; puts the headers of the rules over every other answer.
   * @returns whether the request is answered
   */
  begin(res: ServerResponse, requestId: string): boolean {
    const said = this.router.before(this.request);
    overlay(res, said.headers, said.kind === 'go' && said.cors);
    if (said.kind === 'go') return false;
    const location = said.kind === 'redirect' ? { Location: said.location } : {};
    const status = said.kind === 'redirect' ? said.status : 204;
    const length = said.kind === 'redirect' ? { 'Content-Length': 0 } : {};
    res.writeHead(status, { ...location, ...length, 'X-Request-Id': requestId });
    res.end();
    return true;
  }

  /** Where a request that no file answers is to be answered from instead; null: nowhere else. */
  rewrite(): Rewritten | null {
    return this.router.rewrite(this.request);
  }
}
