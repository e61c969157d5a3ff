import { type IncomingMessage, type ServerResponse } from 'node:http';
import { type EdgeLogger } from '../observe/logger.js';
import { type RouteSource } from '../routes/route-source.js';

/** Where certificate authorities look (RFC 8555, 8.3); a token has base64url letters only. */
const place = /^\/\.well-known\/acme-challenge\/([\w-]{16,200})$/;
/** Questions to the control plane at once; visitors may ask for invented tokens without end. */
const MAX_ASKING = 16;
const ASK_MS = 2_000;

/** Whether a request may be one of an authority: cheap, since every request is asked. */
export const mayBeChallenge = (url: string): boolean => url.startsWith('/.well-known/acme-challenge/');

/** Answers certificate authorities while a certificate is being ordered for a name. */
export class AcmeChallenges {
  private asking = 0;

  constructor(
    private readonly source: RouteSource,
    private readonly logger: EdgeLogger,
  ) {}

  /**
   * @param url path and query
   * @returns false when the request is none of an authority: it goes its usual way, since an app may use the place itself
   */
  async answer(req: IncomingMessage, res: ServerResponse, host: string, url: string): Promise<boolean> {
    const token = place.exec(url)?.[1];
    if (token === undefined || (req.method !== 'GET' && req.method !== 'HEAD')) return false;
    if (!this.source.fetchChallenge || this.asking >= MAX_ASKING) return false;
    this.asking += 1;
    let text: string | null = null;
    try {
      text = await this.source.fetchChallenge(host, token, AbortSignal.timeout(ASK_MS));
    } catch (error) {
      this.logger.warn({ err: error, host }, 'the control plane was not there for a challenge');
    } finally {
      this.asking -= 1;
    }
    if (text === null) return false;
    const body = Buffer.from(text);
    res.writeHead(200, {
      'content-type': 'application/octet-stream',
      'content-length': body.length,
      'cache-control': 'no-store',
    });
    res.end(req.method === 'HEAD' ? undefined : body);
    return true;
  }
}
