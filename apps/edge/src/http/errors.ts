import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http';
import { prefersHtml } from './accept.js';

/** An answer that the edge itself makes. */
export interface EdgeError {
  status: number;
  /** Stable word of the JSON body. */
  code: string;
  /** Shown to visitors: never names the inside. */
  message: string;
  requestId: string;
  /** Seconds. */
  retryAfter?: number;
  /** For 405. */
  allow?: string;
  /** Close the connection: the rest of it cannot be trusted, or a body is left unread. */
  close?: boolean;
}

/** The JSON body of an error: `{"error":{"code","message","request_id"?}}`. */
export function errorJson(code: string, message: string, requestId?: string): string {
  return JSON.stringify({ error: { code, message, ...(requestId ? { request_id: requestId } : {}) } });
}

function errorHtml(error: EdgeError): string {
  const title = `${error.status} ${STATUS_CODES[error.status] ?? 'Error'}`;
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="robots" content="noindex"><title>${title}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh auto;padding:0 1.5rem;color:#1d2430;background:#fff}
h1{font-size:1.4rem}small{color:#6a7280}@media(prefers-color-scheme:dark){body{color:#e6e9ee;background:#14171c}}</style>
</head><body><h1>${title}</h1><p>${escapeHtml(error.message)}</p><small>Request ${escapeHtml(error.requestId)}</small></body></html>
`;
}

/** Text as HTML text. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

/**
 * Sends an answer of the edge itself: a small page to browsers, JSON to everybody else. Does nothing but end the
 * connection when an answer has begun.
 */
export function sendError(req: IncomingMessage, res: ServerResponse, error: EdgeError): void {
  if (res.headersSent || res.destroyed) {
    res.destroy();
    return;
  }
  const html = prefersHtml(req.headers.accept);
  const body = Buffer.from(html ? errorHtml(error) : errorJson(error.code, error.message, error.requestId));
  res.statusCode = error.status;
  // What a failed attempt may have left behind.
  res.statusMessage = '';
  res.setHeader('Content-Type', html ? 'text/html; charset=utf-8' : 'application/json; charset=utf-8');
  res.setHeader('Content-Length', body.length);
  res.setHeader('Cache-Control', 'no-store');
  res.setHeader('X-Content-Type-Options', 'nosniff');
  res.setHeader('Vary', 'Accept');
  res.setHeader('X-Request-Id', error.requestId);
  if (error.retryAfter !== undefined) res.setHeader('Retry-After', error.retryAfter);
  if (error.allow !== undefined) res.setHeader('Allow', error.allow);
  if (error.close) res.setHeader('Connection', 'close');
  res.end(req.method === 'HEAD' ? undefined : body);
}

/**
 * A whole answer as bytes, for connections whose request could not be parsed: no request object exists, so no Accept
 * either, and the body is JSON (interfaces.md section 10).
 */
export function rawError(status: number, code: string, message: string): string {
  const body = errorJson(code, message);
  return (
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Error'}\r\n` +
    'Content-Type: application/json; charset=utf-8\r\n' +
    `Content-Length: ${Buffer.byteLength(body)}\r\n` +
    'Cache-Control: no-store\r\nConnection: close\r\n\r\n' +
    body
  );
}
