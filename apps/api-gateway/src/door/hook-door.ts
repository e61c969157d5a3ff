import type { IncomingMessage, ServerResponse } from 'node:http';
import { hookTypeHeader, identityHeader, type IdentitySigner } from '@nebo/contracts';
import { ApiError, notFound, type Targets } from '@nebo/service-kit';

const prefix = '/hooks/git/';

/**
 * The door of git hosts, `POST /hooks/git/{connection_id}`: no key, the signature over the body is checked by apps-builder.
 * The body goes on as plain bytes, whatever it calls itself: nothing may read it before its signature.
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
    const id = path.slice(prefix.length);
    if (!/^[0-9a-f-]{36}$/i.test(id)) throw notFound();
    if (request.method !== 'POST')
      throw new ApiError(405, 'method_not_allowed', `the path has no ${request.method}; it has POST`, {
        headers: { allow: 'POST' },
      });
    const { headers } = request;
    headers[hookTypeHeader] = headers['content-type'] ?? '';
    headers['content-type'] = 'application/octet-stream';
    headers[identityHeader] = this.signer.sign({ kind: 'service', service: 'api-gateway', account_id: null });
    request.url = `/internal/v1/hooks/git/${id}`;
    this.targets.get('apps-builder').forward(request, response, onError);
    return true;
  }
}
