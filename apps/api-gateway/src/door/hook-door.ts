import type { IncomingMessage, ServerResponse } from 'node:http';
import { hookTypeHeader, identityHeader, type IdentitySigner } from '@nebo/contracts';
import { ApiError, notFound, type Targets } from '@nebo/service-kit';

const prefix = '/hooks/git/';
const callback = '/hooks/git/oauth/callback';

/**
 * The door of git hosts, `POST /hooks/git/{connection_id}`: no key, the signature over the body is checked by apps-builder.
 * The body goes on as plain bytes, whatever it calls itself: nothing may read it before its signature. People whom a git host
 * sends back come here too, `GET /hooks/git/oauth/callback`: what is in the address is checked by apps-builder.
 */
export class HookDoor {
  constructor(
    private readonly targets: Targets,
    private readonly signer: IdentitySigner,
  ) {}

  /** @returns false when the path is not for this door @throws ApiError 404, 405 */
  handle(
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
    onError: (error: unknown) => void,
  ): boolean {
    if (!path.startsWith(prefix)) return false;
    if (path === callback) {
      this.allow(request, 'GET');
      const query = request.url!.includes('?') ? request.url!.slice(request.url!.indexOf('?')) : '';
      return this.forward(request, response, `/internal/v1/git/oauth/callback${query}`, onError);
    }
    const id = path.slice(prefix.length);
    if (!/^[0-9a-f-]{36}$/i.test(id)) throw notFound();
    this.allow(request, 'POST');
    const { headers } = request;
    headers[hookTypeHeader] = headers['content-type'] ?? '';
    headers['content-type'] = 'application/octet-stream';
    return this.forward(request, response, `/internal/v1/hooks/git/${id}`, onError);
  }

  private allow({ method }: IncomingMessage, only: string): void {
    if (method !== only)
      throw new ApiError(405, 'method_not_allowed', `the path has no ${method}; it has ${only}`, {
        headers: { allow: only },
      });
  }

  private forward(
    request: IncomingMessage,
    response: ServerResponse,
    url: string,
    onError: (error: unknown) => void,
  ): true {
    request.headers[identityHeader] = this.signer.sign({
      kind: 'service',
      service: 'api-gateway',
      account_id: null,
    });
    request.url = url;
    this.targets.get('apps-builder').forward(request, response, onError);
    return true;
  }
}
