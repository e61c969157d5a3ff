import { request } from 'node:http';
import { connect } from 'node:net';

/** What one look at a starting replica found. */
export interface ProbeResult {
  ready: boolean;
  /** Nothing took the connection, or nobody answered in time: the app has said nothing itself. */
  silence: 'refused' | 'late' | null;
  /** For the reason of a failed start: "connection refused", "GET /health answered 503". */
  found: string;
}

/**
 * One look: a GET of `path` (2xx and 3xx are ready, redirects not followed), or without a path a connection
 * (interfaces.md section 10 "Readiness"). Never throws.
 */
export function probe(host: string, port: number, path: string, timeoutMs: number): Promise<ProbeResult> {
  return path === '' ? probePort(host, port, timeoutMs) : probePath(host, port, path, timeoutMs);
}

function failed(error: NodeJS.ErrnoException): ProbeResult {
  if (error.code === 'ECONNREFUSED')
    return { ready: false, silence: 'refused', found: 'nothing listened on PORT' };
  const hungUp = error.code === 'ECONNRESET';
  const found = hungUp ? 'the connection was closed without an answer' : error.message;
  return { ready: false, silence: null, found };
}

const late = (found: string): ProbeResult => ({ ready: false, silence: 'late', found });

function probePort(host: string, port: number, timeoutMs: number): Promise<ProbeResult> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const end = (result: ProbeResult) => {
      socket.destroy();
      resolve(result);
    };
    socket.setTimeout(timeoutMs, () => end(late('PORT did not accept')));
    socket.once('connect', () => end({ ready: true, silence: null, found: 'PORT accepts' }));
    socket.once('error', (error) => end(failed(error)));
  });
}

function probePath(host: string, port: number, path: string, timeoutMs: number): Promise<ProbeResult> {
  const target = path.startsWith('/') ? path : `/${path}`;
  return new Promise((resolve) => {
    const end = (result: ProbeResult) => {
      clearTimeout(timer);
      resolve(result);
      call.destroy();
    };
    const call = request(
      { host, port, path: target, method: 'GET', agent: false, headers: { 'user-agent': 'nebo-readiness' } },
      (answer) => {
        const status = answer.statusCode ?? 0;
        const ready = status >= 200 && status < 400;
        end({ ready, silence: null, found: `GET ${target} answered ${status}` });
      },
    );
    const timer = setTimeout(() => end(late(`GET ${target} was not answered`)), timeoutMs);
    call.once('error', (error) => end(failed(error)));
    call.end();
  });
}
