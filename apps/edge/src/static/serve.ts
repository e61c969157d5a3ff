import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { type IncomingMessage, type ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { acceptsHtml, chooseEncoding } from '../http/accept.js';
import { sendError } from '../http/errors.js';
import { cacheControl, type Encoding } from './content.js';
import { type FileCache } from './file-cache.js';
import { matchesTag, parseRange } from './range.js';
import { resolve } from './resolve.js';
import { type Site, type SiteFile } from './site.js';

export interface StaticRequest {
  /** Path and query, as received. */
  url: string;
  requestId: string;
  hasBody: boolean;
}

/** The smaller one first. */
const PREFERRED: readonly Encoding[] = ['br', 'gzip'];

/**
 * Answers a request from the files of a site: GET and HEAD, conditional and partial, compressed where a compressed form
 * exists. Never sets Access-Control-Allow-Origin.
 */
export async function serveStatic(
  req: IncomingMessage,
  res: ServerResponse,
  site: Site,
  cache: FileCache,
  request: StaticRequest,
): Promise<void> {
  const { requestId } = request;
  if (req.method !== 'GET' && req.method !== 'HEAD') {
    const message = 'This site answers GET and HEAD only.';
    sendError(req, res, {
      status: 405,
      code: 'method_not_allowed',
      message,
      requestId,
      allow: 'GET, HEAD',
      close: request.hasBody,
    });
    return;
  }
  const mark = request.url.indexOf('?');
  const path = mark < 0 ? request.url : request.url.slice(0, mark);
  const query = mark < 0 ? '' : request.url.slice(mark);
  const resolved = resolve(site, path, acceptsHtml(req.headers.accept));
  switch (resolved.kind) {
    case 'malformed':
      sendError(req, res, { status: 400, code: 'bad_path', message: 'The path is malformed.', requestId });
      return;
    case 'missing':
      sendError(req, res, { status: 404, code: 'not_found', message: 'There is no such page.', requestId });
      return;
    case 'redirect':
      res.writeHead(308, {
        Location: resolved.path + query,
        'Cache-Control': 'public, max-age=0, must-revalidate',
        'Content-Length': 0,
        'X-Request-Id': requestId,
      });
      res.end();
      return;
    case 'file':
      site.inFlight++;
      try {
        await sendFile(req, res, resolved, cache, requestId);
      } finally {
        site.inFlight--;
      }
  }
}

async function sendFile(
  req: IncomingMessage,
  res: ServerResponse,
  found: { path: string; file: SiteFile; status: 200 | 404; byAccept: boolean },
  cache: FileCache,
  requestId: string,
): Promise<void> {
  const { file } = found;
  const vary = [...(file.compressible ? ['Accept-Encoding'] : []), ...(found.byAccept ? ['Accept'] : [])];
  const headers: Record<string, string | number> = {
    'Content-Type': file.type,
    'Cache-Control':
      found.status === 404 || found.byAccept ? cacheControl('index.html') : cacheControl(found.path),
    'X-Content-Type-Options': 'nosniff',
    'X-Request-Id': requestId,
  };
  if (vary.length > 0) headers['Vary'] = vary.join(', ');

  const plainTag = `"${file.hash}"`;
  const ranged = req.method === 'GET' && found.status === 200 && req.headers.range !== undefined;
  const ifRange = req.headers['if-range'];
  // Offsets mean the file as it is, so a partial answer is never taken from a compressed form.
  const range =
    ranged && (ifRange === undefined || ifRange === plainTag)
      ? parseRange(req.headers.range, file.size)
      : null;
  const accepted = req.headers['accept-encoding'];
  const encoding = (
    range && range.kind !== 'whole'
      ? null
      : chooseEncoding(
          Array.isArray(accepted) ? accepted.join(',') : accepted,
          PREFERRED.filter((coding) => file.encodings[coding]),
        )
  ) as Encoding | null;
  const body = encoding ? file.encodings[encoding]! : file;
  const tag = encoding ? `"${file.hash}-${encoding}"` : plainTag;

  if (found.status === 200) {
    headers['ETag'] = tag;
    headers['Accept-Ranges'] = 'bytes';
    if (matchesTag(req.headers['if-none-match'], tag)) {
      delete headers['Content-Type'];
      res.writeHead(304, headers);
      res.end();
      return;
    }
  }
  if (range?.kind === 'unsatisfiable') {
    res.setHeader('Content-Range', `bytes */${file.size}`);
    sendError(req, res, {
      status: 416,
      code: 'range_not_satisfiable',
      message: 'The range lies outside of the file.',
      requestId,
    });
    return;
  }
  const part = range?.kind === 'part' ? range : null;
  const start = part?.start ?? 0;
  const end = part?.end ?? body.size - 1;
  if (part) headers['Content-Range'] = `bytes ${start}-${end}/${file.size}`;
  if (encoding) headers['Content-Encoding'] = encoding;
  headers['Content-Length'] = Math.max(0, end - start + 1);
  const status = part ? 206 : found.status;
  if (req.method === 'HEAD' || body.size === 0) {
    res.writeHead(status, headers);
    res.end();
    return;
  }

  const content = await cache.read(body.file, body.size);
  if (content) {
    if (content.length !== body.size) throw new Error(`${body.file} has changed on disk`);
    res.writeHead(status, headers);
    res.end(part ? content.subarray(start, end + 1) : content);
    return;
  }
  // Opened before the head is sent, so that a missing file is still an error and not a broken answer.
  const handle = await open(body.file, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    res.writeHead(status, headers);
    await pipeline(handle.createReadStream({ start, end, autoClose: false }), res);
  } finally {
    await handle.close();
  }
}
