import { Pool } from 'undici';

/**
 * Keeps `connections` requests under way for `ms`.
 * @returns requests that were answered with 200; anything else throws
 */
export async function load({ url, headers = {}, ms, connections = 32 }) {
  const { origin, pathname, search } = new URL(url);
  const pool = new Pool(origin, { connections, pipelining: 1 });
  const end = performance.now() + ms;
  let requests = 0;
  const worker = async () => {
    while (performance.now() < end) {
      const answer = await pool.request({ method: 'GET', path: pathname + search, headers });
      await answer.body.dump();
      if (answer.statusCode !== 200) throw new Error(`${url} answered ${answer.statusCode}`);
      requests += 1;
    }
  };
  try {
    await Promise.all(Array.from({ length: connections }, worker));
  } finally {
    await pool.close();
  }
  return requests;
}
