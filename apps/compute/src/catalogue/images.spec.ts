import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import type { TestAnswer } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent, gateway } from '../../test/harness.js';
import { Blobs } from '../blobs/blobs.js';

/** A qcow2 file as far as anybody looks: a header that says how large the disk is, and something behind it. */
function qcow2(gb: number, more: { backing?: bigint } = {}): Buffer {
  const file = Buffer.concat([Buffer.alloc(4_096), randomBytes(512)]);
  file.write('QFI\xfb', 'latin1');
  file.writeUInt32BE(3, 4);
  file.writeBigUInt64BE(more.backing ?? 0n, 8);
  file.writeUInt32BE(16, 20);
  file.writeBigUInt64BE(BigInt(gb) * 1024n ** 3n, 24);
  return file;
}

const hash = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

describe('images of operators', () => {
  let bench: Bench;
  let agent: FakeAgent;
  beforeAll(async () => {
    bench = await Bench.start({ NEBO_DISK_FILE_MAX: '20000' });
    agent = new FakeAgent(bench);
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const upload = (
    bytes: Buffer,
    query = '',
    headers: Record<string, string> = { 'content-type': 'application/octet-stream' },
  ): Promise<TestAnswer> =>
    bench.nebo.request('compute', {
      method: 'POST',
      path: `/internal/v1/operator/image-files${query}`,
      as: gateway,
      body: bytes,
      headers,
    });
  const add = (sha256: string, more: Record<string, unknown> = {}) =>
    bench.internal('POST', 'operator/images', {
      slug: 'debian',
      version: '12',
      name: 'Debian 12',
      sha256,
      ...more,
    });
  const added = async (bytes: Buffer, more: Record<string, unknown> = {}): Promise<TestAnswer['body']> => {
    const { sha256 } = (await upload(bytes)).body;
    const answer = await add(sha256, more);
    if (answer.status !== 201) throw new Error(answer.text);
    return answer.body;
  };
  const listed = async () =>
    (await bench.api('GET', `projects/${bench.project}/images`)).body.images.map(
      ({ id }: { id: string }) => id,
    );
  const collect = () => bench.nebo.services.get('compute')!.app.get(Blobs).collect();
  const age = () => bench.sql("update blob set stored_at = now() - interval '25 hours'");

  it('a stored file says what it is; the image is offered with the disk that it needs', async () => {
    const bytes = qcow2(3);
    const stored = await upload(bytes, `?sha256=${hash(bytes)}`);
    expect(stored).toMatchObject({
      status: 201,
      body: {
        sha256: hash(bytes),
        bytes: bytes.length,
        format: 'qcow2',
        virtual_bytes: 3 * 1024 ** 3,
        min_disk_gb: 3,
      },
    });
    expect(await listed()).toEqual([bench.image]);
    const image = await add(hash(bytes), { region: bench.region, description: 'bookworm' });
    expect(image).toMatchObject({
      status: 201,
      body: {
        slug: 'debian',
        filename: `debian-12-${hash(bytes).slice(0, 8)}.qcow2`,
        min_disk_gb: 3,
        sha256: hash(bytes),
        region_ids: [bench.region],
      },
    });
    expect(await listed()).toContain(image.body.id);
    expect(await add(hash(bytes))).toMatchObject({ status: 409, body: { error: { code: 'image_exists' } } });
    // A build that came later is the one to take of its version.
    const newer = await added(qcow2(3));
    const { families } = (await bench.api('GET', `projects/${bench.project}/images`)).body;
    const debian = families.find(({ slug }: { slug: string }) => slug === 'debian');
    expect(debian.versions).toMatchObject([{ image_id: newer.id, by_cluster: { [bench.region]: newer.id } }]);
  });

  it('a raw disk is known by its partition table; more disk than needed may be asked for', async () => {
    const raw = Buffer.alloc(8_192);
    raw.writeUInt16BE(0x55aa, 510);
    const image = await added(raw, { slug: 'raw', version: '1 beta', min_disk_gb: 7 });
    expect(image).toMatchObject({
      min_disk_gb: 7,
      filename: expect.stringMatching(/^raw-1-beta-[0-9a-f]{8}\.raw$/),
    });
  });

  it('a machine of it needs that disk, and its region reads its bytes; no other region does', async () => {
    const bytes = qcow2(20);
    const image = await added(bytes, { slug: 'large' });
    const small = await bench.create({ image_id: image.id });
    expect(small).toMatchObject({ status: 422, body: { detail: [{ loc: ['body', 'disk_size_gb'] }] } });
    const read = (as = agent) => as.call('GET', `blob/${image.sha256}`);
    expect((await read()).status).toBe(404);
    const vm = await bench.vm({ image_id: image.id, disk_size_gb: 20 });
    const item = await agent.see(vm.id);
    expect(item.spec).toMatchObject({
      image: { id: image.id, filename: image.filename, blob: { sha256: hash(bytes), bytes: bytes.length } },
      restore: null,
    });
    expect(await read()).toMatchObject({ status: 200, headers: { 'content-length': `${bytes.length}` } });
    const far = (await bench.internal('POST', 'operator/regions', { name: 'far' })).body.id;
    const stranger = new FakeAgent(bench, { kind: 'agent', region_id: far, epoch: 1 });
    expect((await read(stranger)).status).toBe(404);
    expect((await bench.create({ image_id: image.id, disk_size_gb: 20, cluster_id: far })).status).toBe(404);
    // The built-in image has no bytes here.
    const tiny = await agent.see((await bench.vm()).id);
    expect(tiny.spec.image).toEqual({ id: bench.image, filename: 'tiny-1.qcow2', blob: null });
  });

  it('a region that is added later has the built-in image at once, and others when they are added again', async () => {
    const image = await added(qcow2(1), { slug: 'all' });
    const { id: later } = (await bench.internal('POST', 'operator/regions', { name: 'later' })).body;
    const there = async () =>
      (await bench.api('GET', `projects/${bench.project}/images?cluster_id=${later}`)).body.images.map(
        ({ id }: { id: string }) => id,
      );
    expect(await there()).toEqual([bench.image]);
    expect((await bench.create({ cluster_id: later })).status).toBe(201);
    const again = await add(image.sha256, { slug: 'all', region: later });
    expect(again).toMatchObject({ status: 201, body: { id: image.id } });
    expect(again.body.region_ids).toEqual(expect.arrayContaining([bench.region, later]));
    expect((await there()).toSorted()).toEqual([bench.image, image.id].toSorted());
    expect((await bench.create({ cluster_id: later, image_id: image.id })).status).toBe(201);
    for (const region of [later, bench.region])
      expect((await add(image.sha256, { slug: 'all', region })).status).toBe(409);
  });

  it('withdrawn: not offered any more, but machines keep it and its bytes until the last is gone; added again it is back', async () => {
    const bytes = qcow2(1);
    const image = await added(bytes, { slug: 'old' });
    const vm = await bench.vm({ image_id: image.id });
    await agent.run(vm.id);
    const withdraw = (id: string) => bench.internal('POST', 'operator/images/withdraw', { image: id });
    expect((await withdraw(image.id)).body).toMatchObject({ id: image.id, withdrawn_at: expect.any(String) });
    expect((await withdraw(image.id)).status).toBe(201);
    expect((await withdraw(randomUUID())).status).toBe(404);
    expect((await withdraw('none')).status).toBe(422);
    expect(await listed()).not.toContain(image.id);
    expect(await bench.create({ image_id: image.id })).toMatchObject({
      status: 404,
      body: { error: { message: expect.stringContaining('image_id') } },
    });
    await age();
    await collect();
    expect((await agent.call('GET', `blob/${image.sha256}`)).status).toBe(200);
    expect((await add(image.sha256, { slug: 'old', name: 'Old, but good' })).body).toMatchObject({
      id: image.id,
      name: 'Old, but good',
      withdrawn_at: null,
    });
    expect(await listed()).toContain(image.id);
    await withdraw(image.id);
    await bench.api('DELETE', `vms/${vm.id}`);
    await agent.observe(await agent.see(vm.id, 2), 'gone');
    await eventually('no rows', async () => (await bench.remains(vm.id)).rows === 0);
    await age();
    expect(await collect()).toBeGreaterThan(0);
    expect(await add(image.sha256, { slug: 'old' })).toMatchObject({
      status: 404,
      body: { error: { message: expect.stringContaining('sha256') } },
    });
    expect(await listed()).toContain(bench.image);
  });

  it.each([
    ['no disk', Buffer.from('not a disk'), ['body'], 'neither a qcow2 file'],
    ['a file that names others', qcow2(1, { backing: 200n }), ['body'], 'backing file'],
  ])('422 for %s', async (_what, bytes, loc, msg) => {
    const answer = await upload(bytes);
    expect(answer).toMatchObject({
      status: 422,
      body: { detail: [{ loc, msg: expect.stringContaining(msg) }] },
    });
    // Nor can it be named afterwards.
    expect((await add(hash(bytes), { slug: 'bad' })).status).toBe(422);
  });

  it('422 for another hash, 413 for too much, 415 for another type, 401 for a key; nothing is offered of it', async () => {
    const before = await listed();
    const bytes = qcow2(1);
    expect(await upload(bytes, `?sha256=${'0'.repeat(64)}`)).toMatchObject({
      status: 422,
      body: { detail: [{ type: 'hash_mismatch' }] },
    });
    expect((await upload(bytes, '?sha256=x')).status).toBe(422);
    expect((await upload(Buffer.alloc(20_001))).status).toBe(413);
    expect((await upload(bytes, '', { 'content-type': 'application/json' })).status).toBe(415);
    const asKey = await bench.nebo.request('compute', {
      method: 'POST',
      path: '/internal/v1/operator/image-files',
      as: bench.key,
      body: bytes,
      headers: { 'content-type': 'application/octet-stream' },
    });
    expect(asKey.status).toBe(401);
    for (const [more, status] of [
      [{ sha256: '0'.repeat(64) }, 404],
      [{ sha256: 'x' }, 422],
      [{ slug: 'Not Good' }, 422],
      [{ version: '' }, 422],
      [{ min_disk_gb: 0 }, 422],
      [{ region: randomUUID() }, 404],
    ] as const) {
      const { sha256 } = (await upload(bytes)).body;
      expect((await add(sha256, more)).status).toBe(status);
    }
    expect(await listed()).toEqual(before);
  });

  it('an upload that is cut off is nothing, and its part is swept', async () => {
    const port = await bench.nebo.services.get('compute')!.listen(0);
    const { runtime } = bench.nebo;
    const identity = runtime.signer.sign(gateway);
    const store = runtime.blobsOf('compute');
    const count = async () => {
      let blobs = 0;
      for await (const _ of store.list()) blobs += 1;
      return blobs;
    };
    const before = await count();
    await cutOff(port, identity);
    await eventually('swept', async () => (await store.sweep(0)) === 0);
    expect(await count()).toBe(before);
  });
});

/** Sends half of an upload and hangs up. */
async function cutOff(port: number, identity: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.write(
        `POST /internal/v1/operator/image-files HTTP/1.1\r\nhost: x\r\nx-nebo-identity: ${identity}\r\n` +
          'content-type: application/octet-stream\r\ncontent-length: 10000\r\n\r\n',
      );
      socket.write(Buffer.alloc(4_000));
      setTimeout(() => socket.destroy(), 100);
    });
    socket.on('close', () => resolve());
    socket.on('error', reject);
  });
}
