import { type OutgoingHttpHeader, type OutgoingHttpHeaders, type ServerResponse } from 'node:http';
import { type HeaderPair } from '@nebo/routing';

/**
 * Puts headers over whatever answers: files, replicas and the edge's own pages write their heads in their own ways, and
 * the rules of an app win over all of them. `Vary` is added to, since leaving out what an answer varies by poisons caches.
 * @param isCorsRuled a rule says which origins may read the answer: what the app itself says about that is left out
 */
export function overlay(res: ServerResponse, pairs: readonly HeaderPair[], isCorsRuled = false): void {
  if (pairs.length === 0 && !isCorsRuled) return;
  const names = new Set(pairs.map(([name]) => name.toLowerCase()));
  const writeHead = res.writeHead.bind(res) as (
    status: number,
    message: string | undefined,
    headers: OutgoingHttpHeader[],
  ) => ServerResponse;
  const over = (
    status: number,
    message?: string | OutgoingHttpHeaders | OutgoingHttpHeader[],
    headers?: OutgoingHttpHeaders | OutgoingHttpHeader[],
  ): ServerResponse => {
    const given = flat(typeof message === 'string' ? headers : message);
    // What was set one by one before (error pages) comes along.
    for (const name of res.getHeaderNames()) {
      if (!given.some((one, index) => index % 2 === 0 && String(one).toLowerCase() === name))
        for (const value of [res.getHeader(name)!].flat()) given.push(name, value);
      res.removeHeader(name);
    }
    const out: OutgoingHttpHeader[] = [];
    const varies: string[] = [];
    for (let index = 0; index < given.length; index += 2) {
      const name = String(given[index]).toLowerCase();
      if (isCorsRuled && name.startsWith('access-control-')) continue;
      if (!names.has(name)) out.push(given[index]!, given[index + 1]!);
      else if (name === 'vary') varies.push(String(given[index + 1]));
    }
    for (const [name, value] of pairs)
      out.push(name, name.toLowerCase() === 'vary' ? [...varies, value].join(', ') : value);
    return writeHead(status, typeof message === 'string' ? message : undefined, out);
  };
  res.writeHead = over as ServerResponse['writeHead'];
}

function flat(headers: OutgoingHttpHeaders | OutgoingHttpHeader[] | undefined): OutgoingHttpHeader[] {
  if (headers === undefined) return [];
  if (Array.isArray(headers)) return [...headers];
  return Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [value].flat().flatMap((one) => [name, one]),
  );
}
