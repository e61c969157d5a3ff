import { randomBytes, randomUUID } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { request } from 'node:http';
import { gzipSync } from 'node:zlib';
import { sharedPostgres } from '@nebo/test-kit';
import { archive, Bench, sha256 } from '../../test/harness.js';

describe('uploads', () => {
  let bench: Bench;
  let url: string;
  const bytes = archive({ 'index.html': 'uploads' });
  /** Every file of the blob store, also those under way. */
  const files = () => {
    const folder = `${bench.nebo.runtime.home}/blobs`;
    return readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ name }) => name);
  };

  /** A body in pieces without a length, as Go sends files. */
  const chunked = (
    path: string,
    pieces: Buffer[],
    more: { headers?: Record<string, string>; cut?: boolean; length?: number } = {},
  ) =>
    new Promise<{ status: number; body: string }>((resolve, reject) => {
      const call = request(
        `${url}/v1/${path}`,
        {
          method: 'POST',
          headers: {
            ...bench.signed(),
            'content-type': 'application/gzip',
            ...(more.length ? { 'content-length': more.length } : { 'transfer-encoding': 'chunked' }),
            ...more.headers,
          },
        },
        (answer) => {
          let body = '';
          answer
            .on('data', (part) => (body += part))
            .on('end', () => resolve({ status: answer.statusCode!, body }));
        },
      );
      call.on('error', reject);
      const next = () => {
        const piece = pieces.shift();
        if (piece) return void call.write(piece, () => setTimeout(next, 5));
        if (more.cut) return void call.destroy();
        call.end();
      };
      next();
    });

  beforeAll(async () => {
    bench = await Bench.start({
      NEBO_ARCHIVE_MAX_COMPRESSED: '200000',
      NEBO_ARCHIVE_MAX_EXPANDED: '1000000',
    });
    url = await bench.listen();
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('202 queues a build with the archive as its source, in both addressings', async () => {
    const app = await bench.app();
    for (const path of [`apps/${app.id}`, `projects/${bench.project}/apps/${app.id}`]) {
      const { status, body } = await bench.upload(`${path}/deployments`, bytes);
      expect(status).toBe(202);
      expect(body).toEqual({ id: expect.any(String), app_id: app.id, site_id: app.id, status: 'queued' });
      expect((await bench.api('GET', `${path}/builds/${body.id}`)).body).toMatchObject({
        status: 'queued',
        deploy_state: null,
        source_archive_sha256: sha256(bytes),
        source_archive_bytes: bytes.length,
        commit_sha: null,
        error: null,
      });
    }
    expect((await bench.api('GET', `apps/${app.id}`)).body).toMatchObject({
      status: 'pending',
      deploy_state: null,
      current_build_id: null,
    });
    expect(files()).toContain(sha256(bytes));
  });

  it('202 for a body in chunks without a length', async () => {
    const app = await bench.app();
    const big = archive({ 'a.txt': randomBytes(60_000).toString('hex') });
    const pieces = Array.from({ length: Math.ceil(big.length / 9_000) }, (_, at) =>
      big.subarray(at * 9_000, (at + 1) * 9_000),
    );
    const answer = await chunked(`apps/${app.id}/deployments`, pieces);
    expect(answer.status).toBe(202);
    expect((await bench.api('GET', `apps/${app.id}/builds`)).body.data[0].source_archive_sha256).toBe(
      sha256(big),
    );
  });

  it('404 for a foreign app, 415 for another type, 422 for an app of another source: before the body is read', async () => {
    const app = await bench.app();
    expect((await bench.upload(`apps/${app.id}/deployments`, bytes, bench.stranger)).status).toBe(404);
    expect((await bench.upload(`apps/${randomUUID()}/deployments`, bytes)).status).toBe(404);
    expect((await bench.upload(`apps/${app.id}/deployments`, bytes, null)).status).toBe(401);
    for (const type of ['application/json', 'application/octet-stream', 'text/plain']) {
      expect(
        (await bench.upload(`apps/${app.id}/deployments`, bytes, bench.key, { 'content-type': type })).status,
      ).toBe(415);
    }
    const git = await bench.app({ source_type: 'git' });
    expect(await bench.upload(`apps/${git.id}/deployments`, bytes)).toMatchObject({
      status: 422,
      body: { error: { code: 'validation_error' } },
    });
  });

  it('413 and 422 name the rule and leave no file and no build', async () => {
    const app = await bench.app();
    const before = files();
    const tar = archive();
    const cases: [Buffer, number, string][] = [
      [Buffer.alloc(0), 422, 'empty_body'],
      [Buffer.from('no gzip at all'), 422, 'not_gzip'],
      [tar.subarray(0, tar.length - 12), 422, 'truncated'],
      [Buffer.concat([tar, Buffer.from('tail')]), 422, 'trailing_data'],
      [archive({ '../evil': 'x' }), 422, 'path_parent'],
      [archive({ '/etc/passwd': 'x' }), 422, 'path_absolute'],
      [gzipSync(Buffer.alloc(1024)), 422, 'empty_archive'],
      [archive({ big: randomBytes(250_000).toString('base64') }), 413, 'compressed_size'],
      [archive({ bomb: '0'.repeat(2_000_000) }), 413, 'expanded_size'],
    ];
    for (const [body, status, rule] of cases) {
      const answer = await bench.upload(`apps/${app.id}/deployments`, body);
      expect([answer.status, answer.body.error.message]).toEqual([status, expect.stringContaining(rule)]);
      expect(answer.body.detail[0]).toMatchObject({ loc: ['body'], type: rule });
    }
    expect(files()).toEqual(before);
    expect((await bench.api('GET', `apps/${app.id}/builds`)).body.total).toBe(0);
  });

  it('413 also reaches a client that is still sending', async () => {
    const app = await bench.app();
    const big = archive({ noise: randomBytes(600_000).toString('base64') });
    const pieces = Array.from({ length: 20 }, (_, at) => big.subarray(at * 40_000, (at + 1) * 40_000)).filter(
      ({ length }) => length > 0,
    );
    const answer = await chunked(`apps/${app.id}/deployments`, pieces);
    expect([answer.status, answer.body]).toEqual([413, expect.stringContaining('compressed_size')]);
  });

  it('a client that leaves in the middle leaves nothing behind', async () => {
    const app = await bench.app();
    const before = files();
    const big = archive({ 'a.txt': randomBytes(50_000).toString('hex') });
    await expect(
      chunked(`apps/${app.id}/deployments`, [big.subarray(0, 30_000)], { cut: true }),
    ).rejects.toThrow();
    for (let tries = 0; tries < 100 && files().length !== before.length; tries += 1)
      await new Promise((resolve) => setTimeout(resolve, 20));
    expect(files()).toEqual(before);
    expect((await bench.api('GET', `apps/${app.id}/builds`)).body.total).toBe(0);
  });

  it('repeats its answer for one Idempotency-Key and archive; 422 for another archive under it', async () => {
    const app = await bench.app();
    const headers = { 'idempotency-key': randomUUID() };
    const first = await bench.upload(`apps/${app.id}/deployments`, bytes, bench.key, headers);
    expect((await bench.upload(`apps/${app.id}/deployments`, bytes, bench.key, headers)).body).toEqual(
      first.body,
    );
    expect(
      (await bench.upload(`apps/${app.id}/deployments`, archive({ other: 'x' }), bench.key, headers)).body
        .error.code,
    ).toBe('idempotency_key_reused');
    expect((await bench.api('GET', `apps/${app.id}/builds`)).body.total).toBe(1);
  });
});
