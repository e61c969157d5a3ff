import type { IncomingMessage, ServerResponse } from 'node:http';
import { type AgentIdentity, identityHeader, type IdentitySigner, type ResolvedAgent } from '@nebo/contracts';
import {
  ApiError,
  badRequest,
  conflict,
  type Peers,
  type Targets,
  tooLarge,
  unauthorized,
  unknownOperation,
} from '@nebo/service-kit';
import { bearerOf } from '../door/bearer.js';

/** Bytes of a session's body: what the region can hold, three numbers. */
const maxSessionBytes = 16_384;

/** How long a token's region and epoch are believed; a newer agent is noticed by services at once, here after this time. */
const cacheMs = 2_000;

/**
 * The door of region agents, `/agent/v1/…`: a region token instead of a key. `POST session` takes the region; every later
 * call names the epoch that it got, and an agent that lost its region gets 409.
 */
export class AgentDoor {
  private readonly known = new Map<string, { agent: ResolvedAgent; until: number }>();

  constructor(
    private readonly peers: Peers,
    private readonly targets: Targets,
    private readonly signer: IdentitySigner,
  ) {}

  /** @throws ApiError 401 unknown token, 404 unknown path, 409 `stale_epoch` */
  async handle(
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
    onError: (error: unknown) => void,
  ): Promise<void> {
    const token = bearerOf(request);
    if (!token || !token.startsWith('nebo_region_')) throw unauthorized('a region token is needed');
    const [service, rest] = path.slice('/agent/v1/'.length).split('/', 2);
    if (service === 'session' && rest === undefined && request.method === 'POST')
      return this.session(token, request, response);
    if (!service || rest === undefined || !this.targets.has(service)) throw unknownOperation();
    const epoch = Number(request.headers['x-nebo-agent-epoch'] ?? 0);
    const agent = await this.resolve(token, epoch);
    if (epoch !== agent.epoch) throw conflict('stale_epoch', 'another agent has taken this region');
    const identity: AgentIdentity = { kind: 'agent', region_id: agent.region_id, epoch };
    request.headers[identityHeader] = this.signer.signOften(identity);
    delete request.headers.authorization;
    this.targets.get(service).forward(request, response, onError);
  }

  private async session(token: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { region_id } = await this.ask(token);
    const body = await sessionBody(request);
    const agent = await this.peers.call<ResolvedAgent>(
      'compute',
      `/internal/v1/agents/${region_id}/take-over`,
      { method: 'POST', account: null, body },
    );
    this.known.clear();
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(agent));
  }

  private async resolve(token: string, epoch: number): Promise<ResolvedAgent> {
    const now = performance.now();
    const known = this.known.get(token);
    if (known && known.until > now && known.agent.epoch === epoch) return known.agent;
    const agent = await this.ask(token);
    this.known.set(token, { agent, until: now + cacheMs });
    return agent;
  }

  private async ask(token: string): Promise<ResolvedAgent> {
    try {
      return await this.peers.call<ResolvedAgent>('compute', '/internal/v1/agents/resolve', {
        account: null,
        body: { token },
      });
    } catch (error) {
      if (error instanceof ApiError && error.status === 404)
        throw unauthorized('the region token is unknown');
      throw error;
    }
  }
}

/** What an agent says when it takes its region (`TakeOverRequest`); compute checks it. @throws ApiError 400, 413 */
async function sessionBody(request: IncomingMessage): Promise<object> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of request as AsyncIterable<Buffer>) {
    size += part.length;
    if (size > maxSessionBytes) throw tooLarge('the body of a session is too large');
    parts.push(part);
  }
  if (size === 0) return {};
  try {
    const parsed: unknown = JSON.parse(Buffer.concat(parts).toString('utf8'));
    if (typeof parsed === 'object' && parsed !== null) return parsed;
  } catch {
    // Told below.
  }
  throw badRequest('invalid_json', 'the body is not a JSON object');
}
