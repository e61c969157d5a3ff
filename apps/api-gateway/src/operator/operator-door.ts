import { timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { identityHeader, type IdentitySigner } from '@nebo/contracts';
import { type MasterKey, type Targets, unauthorized, unknownOperation } from '@nebo/service-kit';
import { bearerOf } from '../door/bearer.js';

/** The operator's bearer: whoever can read the installation's master key is the operator. */
export const operatorToken = (masterKey: Pick<MasterKey, 'derive'>): string =>
  `nebo_operator_${masterKey.derive('operator').toString('base64url')}`;

/**
 * The door of the operator's commands, `/operator/v1/<service>/<path>` → `/internal/v1/operator/<path>`: nothing but what
 * services declare for the operator can be reached through it.
 */
export class OperatorDoor {
  private readonly token: Buffer;

  constructor(
    masterKey: MasterKey,
    private readonly targets: Targets,
    private readonly signer: IdentitySigner,
  ) {
    this.token = Buffer.from(operatorToken(masterKey));
  }

  /** @throws ApiError 401 or 404 */
  handle(
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
    onError: (error: unknown) => void,
  ): void {
    const given = Buffer.from(bearerOf(request) ?? '');
    if (given.length !== this.token.length || !timingSafeEqual(given, this.token))
      throw unauthorized('the operator token is needed');
    const match = /^\/operator\/v1\/([a-z-]+)(\/[\w./-]+)$/.exec(path);
    if (!match || path.includes('..') || !this.targets.has(match[1]!)) throw unknownOperation();
    request.headers[identityHeader] = this.signer.sign({
      kind: 'service',
      service: 'operator',
      account_id: null,
    });
    delete request.headers.authorization;
    request.url = `/internal/v1/operator${match[2]}${request.url!.slice(path.length)}`;
    this.targets.get(match[1]!).forward(request, response, onError);
  }
}
