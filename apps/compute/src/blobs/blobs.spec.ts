import { createHash, randomBytes } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, FakeAgent } from '../../test/harness.js';
import { Blobs } from './blobs.js';

describe('blobs of a region', () => {
  let bench: Bench;
  let agent: FakeAgent;
  beforeAll(async () => {
    bench = await Bench.start({ NEBO_DISK_FILE_MAX: '1000' });
    agent = new FakeAgent(bench);
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const hash = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
  const put = (name: string, bytes: Buffer, type = 'application/octet-stream', as = agent) =>
    as.call('PUT', `blob/${name}`, bytes, { 'content-type': type });
  const has = (sha256: string) => bench.nebo.runtime.blobsOf('compute').has(sha256);
  const collect = () => bench.nebo.services.get('compute')!.app.get(Blobs).collect();
  const age = () => bench.sql("update blob set stored_at = now() - interval '25 hours'");
  const backedUp = async (bytes: Buffer) => {
    const vm = (await agent.run((await bench.vm({ backup_count: 2 })).id)).id as string;
    const { id } = (await bench.api('POST', `vms/${vm}/backups`, { name: 'b' })).body;
    await agent.back(id, bytes);
    await bench.api('GET', `vms/${vm}/backups/${id}?wait=ready&timeout=30`);
    return { vm, id };
  };

  it('are stored under their hash: 422 for another, 413 for too much, 415 for another type, 401 without an agent', async () => {
    const bytes = randomBytes(100);
    expect(await put(hash(bytes), bytes)).toMatchObject({
      status: 200,
      body: { sha256: hash(bytes), bytes: 100 },
    });
    expect(await put('0'.repeat(64), bytes)).toMatchObject({
      status: 422,
      body: { detail: [{ type: 'hash_mismatch' }] },
    });
    expect((await put('x', bytes)).status).toBe(422);
    expect((await put(hash(bytes), Buffer.alloc(1_001))).status).toBe(413);
    expect((await put(hash(bytes), bytes, 'application/json')).status).toBe(415);
    for (const method of ['GET', 'PUT'] as const)
      expect(
        (
          await bench.nebo.request('compute', {
            method,
            path: `/agent/v1/compute/blob/${hash(bytes)}`,
            as: bench.key,
            ...(method === 'PUT' ? { body: bytes } : {}),
            headers: { 'content-type': 'application/octet-stream' },
          })
        ).status,
      ).toBe(401);
  });

  it('404 for what no machine of the region is to be made of, also for what the region has stored itself', async () => {
    const bytes = randomBytes(100);
    await put(hash(bytes), bytes);
    for (const name of [hash(bytes), '0'.repeat(64), 'none', `..%2f..%2f${hash(bytes)}`])
      expect((await agent.call('GET', `blob/${name}`)).status).toBe(404);
  });

  it('409 stale_epoch for an agent that another one has replaced', async () => {
    const region = (await bench.internal('POST', 'operator/regions', { name: 'contested' })).body
      .id as string;
    await new FakeAgent(bench, { kind: 'agent', region_id: region, epoch: 2 }).poll();
    const old = new FakeAgent(bench, { kind: 'agent', region_id: region, epoch: 1 });
    const bytes = randomBytes(10);
    for (const answer of [
      await old.call('GET', `blob/${hash(bytes)}`),
      await put(hash(bytes), bytes, 'application/octet-stream', old),
    ])
      expect(answer).toMatchObject({ status: 409, body: { error: { code: 'stale_epoch' } } });
    expect(await has(hash(bytes))).toBe(null);
  });

  it('what no row owns goes after a day, and not before; what a backup or a restore owns stays', async () => {
    const [orphan, kept, shared] = [randomBytes(50), randomBytes(50), randomBytes(50)];
    await put(hash(orphan), orphan);
    const first = await backedUp(kept);
    const [one, two] = [await backedUp(shared), await backedUp(shared)];
    await collect();
    expect(await has(hash(orphan))).toBe(50);
    await age();
    await collect();
    expect([await has(hash(orphan)), await has(hash(kept)), await has(hash(shared))]).toEqual([null, 50, 50]);

    // Of equal bytes the last backup that has them decides.
    await bench.api('DELETE', `vms/${one.vm}/backups/${one.id}`);
    await collect();
    expect(await has(hash(shared))).toBe(50);
    await bench.api('DELETE', `vms/${two.vm}/backups/${two.id}`);

    // A restore that is under way owns its bytes without the backup.
    await bench.api('POST', `vms/${first.vm}/backups/${first.id}/restore`, { target: 'vm' });
    await bench.api('DELETE', `vms/${first.vm}/backups/${first.id}`);
    await age();
    await collect();
    expect([await has(hash(kept)), await has(hash(shared))]).toEqual([50, null]);
    await agent.observe(await agent.see(first.vm, 2), 'running', { facts: { restored: 1 } });
    await bench.reach(first.vm, 'active');
    await collect();
    expect(await has(hash(kept))).toBe(null);
    expect(await bench.sql('select 1 from blob where sha256 = $1', [hash(kept)])).toEqual([]);
  });

  it('are this service’s own: another one’s with the same bytes stay', async () => {
    const bytes = randomBytes(50);
    await bench.nebo.runtime.blobs.put(bytes);
    await put(hash(bytes), bytes);
    await age();
    await collect();
    expect(await has(hash(bytes))).toBe(null);
    expect(await bench.nebo.runtime.blobs.has(hash(bytes))).toBe(50);
  });

  it('bytes that the collector takes while their backup is noted are an error of the backup, never a backup without bytes', async () => {
    const vm = (await agent.run((await bench.vm({ backup_count: 1 })).id)).id as string;
    const { id } = (await bench.api('POST', `vms/${vm}/backups`, { name: 'b' })).body;
    const item = await agent.seeBackup(id);
    const blob = await agent.put(randomBytes(40));
    await age();
    await Promise.all([
      collect(),
      agent.observeBackup(item, 'ready', {
        facts: { driver: 'fake', real: false, blob, consistency: 'crash' },
      }),
    ]);
    const { body } = await bench.api('GET', `vms/${vm}/backups/${id}?wait=ready&timeout=30`);
    expect((await has(blob.sha256)) === null).toBe(body.status !== 'ready');
  });
});
